#include <algorithm>
#include <optional>
#include <stdexcept>

#include "arrays.h"
#include "problems.h"
#include "weights.h"

#include "kernels/conv2d.h"
#include "kernels/conv3d.h"
#include "kernels/norm.h"
#include "kernels/pixel_shuffle.h"
#include "kernels/ref/reference.h"

namespace mere::bench {
namespace {

namespace mx = mlx::core;

constexpr int kComparedPixels = 64;
constexpr int kComparedBlocks = 4096;
constexpr int kComparedGroups = 4;
constexpr float kEps = 1e-6F;

mx::array evaluated(mx::array a) {
  mx::eval(a);
  return a;
}

// ---- Convolution --------------------------------------------------------------------------------

// x [frames, height, width, channels] under a window [kernel_depth, kernel, kernel], with zeros
// before the first frame and around each.
struct Sliding {
  int frames, height, width, channels;
  int kernel_depth, kernel, stride;

  int out_height() const { return (height + kernel / 2 * 2 - kernel) / stride + 1; }
  int out_width() const { return (width + kernel / 2 * 2 - kernel) / stride + 1; }
};

// What the window of output pixel `at` sees: [kernel_depth * kernel * kernel * channels].
Floats patch_of(const Floats& x, const Sliding& s, int at) {
  const int frame = at / (s.out_height() * s.out_width());
  const int out_row = at / s.out_width() % s.out_height();
  const int out_col = at % s.out_width();
  const int taps = s.kernel_depth * s.kernel * s.kernel;
  Floats patch(static_cast<size_t>(taps) * s.channels);
  for (int tap = 0; tap < taps; ++tap) {
    const int t = frame + tap / (s.kernel * s.kernel) - (s.kernel_depth - 1);
    const int row = out_row * s.stride + tap / s.kernel % s.kernel - s.kernel / 2;
    const int col = out_col * s.stride + tap % s.kernel - s.kernel / 2;
    if (t < 0 || row < 0 || row >= s.height || col < 0 || col >= s.width) continue;
    const int64_t from = ((int64_t{t} * s.height + row) * s.width + col) * s.channels;
    std::copy_n(x.begin() + from, s.channels, patch.begin() + int64_t{tap} * s.channels);
  }
  return patch;
}

// Compares some pixels of y. Their patches are inputs of their own that give one pixel each.
void check_convolution(const Floats& x, const Sliding& s, const mx::array& weight,
                       const mx::array& bias, const std::optional<mx::array>& residual,
                       const mx::array& y, Errors& errors) {
  const Indices compared = some_of(as_rows(y).shape(0), kComparedPixels);
  Floats patches;
  for (const int at : compared) {
    const Floats patch = patch_of(x, s, at);
    patches.insert(patches.end(), patch.begin(), patch.end());
  }
  const auto out = static_cast<int64_t>(bias.size());
  Floats want =
      ref::conv3d(patches, {std::ssize(compared), s.kernel_depth, s.kernel, s.kernel, s.channels},
                  values_of(weight), {out, s.kernel_depth, s.kernel, s.kernel, s.channels},
                  values_of(bias), 1, 1, {0, 0, 0, 0, 0, 0});
  if (residual) {
    const Floats added = values_of(pick(as_rows(*residual), compared, 0));
    for (size_t i = 0; i < want.size(); ++i) want[i] += added[i];
  }
  errors.add(values_of(pick(as_rows(y), compared, 0)), want);
}

void count_convolution(const mx::array& x, const mx::array& weight, double pixels,
                       Problem& problem) {
  problem.flops = 2.0 * pixels * static_cast<double>(weight.size());
  problem.bytes =
      static_cast<double>(x.nbytes() + weight.nbytes()) + 4.0 * pixels * weight.shape(0);
}

}  // namespace

Problem conv2d_problem(const Case& c) {
  const Sliding s{1, c["height"], c["width"], c["in"], 1, c["kernel"], c["stride"]};
  const int out = c["out"];
  const int pad = s.kernel / 2;
  const mx::array x = evaluated(random_array({1, s.height, s.width, s.channels}, 1));
  // [Cout, Cin, kh, kw] in memory, as checkpoints have it.
  const mx::array stored = random_array({out, s.channels, s.kernel, s.kernel}, 2);
  const mx::array weight =
      evaluated(mx::transpose(mx::astype(stored, floating_dtype(c.dtype)), {0, 2, 3, 1}));
  const mx::array bias = evaluated(random_array({out}, 3));
  ConvFusion fusion;
  if (c["fused"] != 0) {
    fusion.norm = ConvNorm{.weight = evaluated(random_array({s.channels}, 4)),
                           .bias = evaluated(random_array({s.channels}, 5)),
                           .groups = s.channels % 32 == 0 ? 32 : 1,
                           .eps = kEps};
    fusion.residual = evaluated(random_array({1, s.out_height(), s.out_width(), out}, 6));
  }
  Problem problem;
  problem.run = [=] {
    return Arrays{conv2d(x, weight, bias, s.stride, {pad, pad, pad, pad}, fusion)};
  };
  problem.check = [=](const Arrays& results, Errors& errors) {
    Floats seen = values_of(x);
    if (fusion.norm) {
      seen = ref::group_norm(seen, values_of(fusion.norm->weight), values_of(fusion.norm->bias), 1,
                             s.channels, fusion.norm->groups, kEps, true);
    }
    check_convolution(seen, s, weight, bias, fusion.residual, results[0], errors);
  };
  count_convolution(x, weight, 1.0 * s.out_height() * s.out_width(), problem);
  if (fusion.residual) problem.bytes += static_cast<double>(fusion.residual->nbytes());
  problem.tolerance = product_tolerance();
  return problem;
}

Problem conv3d_problem(const Case& c) {
  const int kernel = c["kernel"];
  const Sliding s{c["frames"], c["height"], c["width"], c["in"], kernel, kernel, 1};
  const int out = c["out"];
  const int pad = kernel / 2;
  const mx::array x = evaluated(random_array({1, s.frames, s.height, s.width, s.channels}, 1));
  const mx::array stored = random_array({out, s.channels, kernel, kernel, kernel}, 2);
  const mx::array weight =
      evaluated(mx::transpose(mx::astype(stored, floating_dtype(c.dtype)), {0, 2, 3, 4, 1}));
  const mx::array bias = evaluated(random_array({out}, 3));
  const Conv3dPadding padding{
      .front = kernel - 1, .back = 0, .top = pad, .bottom = pad, .left = pad, .right = pad};
  Problem problem;
  problem.run = [=] { return Arrays{conv3d(x, weight, bias, {}, padding)}; };
  problem.check = [=](const Arrays& results, Errors& errors) {
    check_convolution(values_of(x), s, weight, bias, std::nullopt, results[0], errors);
  };
  count_convolution(x, weight, 1.0 * s.frames * s.out_height() * s.out_width(), problem);
  problem.tolerance = product_tolerance();
  return problem;
}

// ---- The rest -----------------------------------------------------------------------------------

Problem group_norm_problem(const Case& c) {
  const int channels = c["channels"];
  const int groups = c["groups"];
  const bool with_silu = c["silu"] != 0;
  const mx::array x = evaluated(random_array({1, c["height"], c["width"], channels}, 1, -1, 2));
  const mx::array weight = evaluated(random_array({channels}, 2));
  const mx::array bias = evaluated(random_array({channels}, 3));
  Problem problem;
  problem.run = [=] { return Arrays{group_norm(x, weight, bias, groups, kEps, with_silu)}; };
  problem.check = [=](const Arrays& results, Errors& errors) {
    const int width = channels / groups;
    for (const int group : some_of(groups, kComparedGroups)) {
      const auto part = [&](const mx::array& a) {
        const mx::array rows = as_rows(a);
        return values_of(mx::slice(rows, {0, group * width}, {rows.shape(0), (group + 1) * width}));
      };
      errors.add(part(results[0]),
                 ref::group_norm(part(x), part(weight), part(bias), 1, width, 1, kEps, with_silu));
    }
  };
  problem.bytes = 2.0 * static_cast<double>(x.nbytes());
  return problem;
}

Problem upsample_problem(const Case& c) {
  const int height = c["height"];
  const int width = c["width"];
  const mx::array x = evaluated(random_array({1, height, width, c["channels"]}, 1));
  Problem problem;
  problem.run = [=] { return Arrays{upsample_nearest_2x(x)}; };
  problem.check = [=](const Arrays& results, Errors& errors) {
    const Indices compared = some_of(int64_t{4} * height * width, kComparedBlocks);
    Indices origins;
    for (const int at : compared) {
      origins.push_back(at / (2 * width) / 2 * width + at % (2 * width) / 2);
    }
    errors.add(values_of(pick(as_rows(results[0]), compared, 0)),
               values_of(pick(as_rows(x), origins, 0)));
  };
  problem.bytes = 5.0 * static_cast<double>(x.nbytes());
  return problem;
}

// Sizes are those of the pixels; channels as they are before packing.
Problem pixel_unshuffle_problem(const Case& c) {
  const int factor = c["factor"];
  const int height = c["height"];
  const int width = c["width"];
  const int channels = c["channels"];
  const mx::array x = evaluated(random_array({1, height, width, channels}, 1));
  Problem problem;
  problem.run = [=] { return Arrays{pixel_unshuffle(x, factor)}; };
  problem.check = [=](const Arrays& results, Errors& errors) {
    errors.add(values_of(results[0]),
               ref::pixel_unshuffle(values_of(x), 1, height, width, channels, factor));
  };
  problem.bytes = 2.0 * static_cast<double>(x.nbytes());
  return problem;
}

Problem pixel_shuffle_problem(const Case& c) {
  const int factor = c["factor"];
  const int height = c["height"];
  const int width = c["width"];
  const int channels = c["channels"];
  if (height % factor != 0 || width % factor != 0) {
    throw std::invalid_argument("[pixel_shuffle] the factor does not fit the shape");
  }
  const mx::array packed =
      evaluated(random_array({1, height / factor, width / factor, channels * factor * factor}, 1));
  Problem problem;
  problem.run = [=] { return Arrays{pixel_shuffle(packed, factor)}; };
  // Its inverse must give the input again.
  problem.check = [=](const Arrays& results, Errors& errors) {
    errors.add(ref::pixel_unshuffle(values_of(results[0]), 1, height, width, channels, factor),
               values_of(packed));
  };
  problem.bytes = 2.0 * static_cast<double>(packed.nbytes());
  return problem;
}

}  // namespace mere::bench
