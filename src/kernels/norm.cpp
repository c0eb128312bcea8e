#include "kernels/norm.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/norm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int64_t kGrainFloats = 8192;  // least work worth a thread

int64_t grain_rows(int64_t width) {
  return std::max<int64_t>(1, kGrainFloats / std::max<int64_t>(1, width));
}

void run_rms_norm(const mx::array& x, const mx::array& weight, float eps, mx::array& out) {
  const Rows<float> rows(x);
  const DenseData<float> gains(weight);
  const int64_t width = rows.width();
  float* to = out.data<float>();
  cpu::parallel_for(rows.count(), grain_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      cpu::rms_norm_row(rows.row(row), gains.data(), eps, width, to + row * width);
    }
  });
}

void run_layer_norm(const mx::array& x, const mx::array& scale, const mx::array& shift, float eps,
                    mx::array& out) {
  const Rows<float> rows(x);
  const Rows<float> scales(scale);
  const Rows<float> shifts(shift);
  const int64_t width = rows.width();
  const int64_t rows_per_scale = rows.count() / scales.count();
  const int64_t rows_per_shift = rows.count() / shifts.count();
  float* to = out.data<float>();
  cpu::parallel_for(rows.count(), grain_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      cpu::layer_norm_row(rows.row(row), scales.row(row / rows_per_scale),
                          shifts.row(row / rows_per_shift), eps, width, to + row * width);
    }
  });
}

struct GroupNorm {
  int groups;
  float eps;
  bool silu, with_moments;  // the moments are the fourth input
};

void run_group_norm(const GroupNorm& norm, const std::vector<mx::array>& in, mx::array& out) {
  const int64_t pixels = int64_t{out.shape(1)} * out.shape(2);
  const int64_t channels = out.shape(3);
  std::vector<float> scale(static_cast<size_t>(channels));
  std::vector<float> shift(static_cast<size_t>(channels));
  const DenseData<float> gains(in[1]);
  const DenseData<float> offsets(in[2]);
  std::optional<DenseData<float>> given;
  if (norm.with_moments) given.emplace(in[3]);
  for (int64_t b = 0; b < out.shape(0); ++b) {
    const float* from = in[0].data<float>() + b * pixels * channels;
    float* to = out.data<float>() + b * pixels * channels;
    cpu::group_norm_factors(from, pixels, given ? given->data() + b * 2 * norm.groups : nullptr,
                            channels, norm.groups, norm.eps, gains.data(), offsets.data(),
                            scale.data(), shift.data());
    cpu::parallel_for(pixels, grain_rows(channels), [&](int64_t begin, int64_t end) {
      cpu::scale_shift_rows(from + begin * channels, scale.data(), shift.data(), norm.silu,
                            end - begin, channels, to + begin * channels);
    });
  }
}

// [B, H, W, C] -> [B, H * W, groups, C / groups]
mx::array split_groups(const mx::array& x, int groups) {
  const auto& shape = x.shape();
  return mx::reshape(x, {shape[0], shape[1] * shape[2], groups, shape[3] / groups});
}

// Mean and variance [B, groups, 2] of split groups.
mx::array composed_moments(const mx::array& split) {
  const std::vector<int> axes = {1, 3};
  const auto mean = mx::mean(split, axes, true);
  const auto variance = mx::mean(mx::square(split - mean), axes);
  return mx::stack({mx::squeeze(mean, axes), variance}, -1);
}

mx::array composed_group_norm(const GroupNorm& norm, const std::vector<mx::array>& in) {
  const auto split = split_groups(in[0], norm.groups);
  const auto moments = norm.with_moments ? in[3] : composed_moments(split);
  // One of both as [B, 1, groups, 1].
  const auto moment = [&](int which) {
    return mx::expand_dims(mx::take(moments, which, 2), std::vector<int>{1, 3});
  };
  const auto normal = (split - moment(0)) * mx::rsqrt(moment(1) + mx::array(norm.eps));
  const auto y = mx::reshape(normal, in[0].shape()) * in[1] + in[2];
  return norm.silu ? y * mx::sigmoid(y) : y;
}

}  // namespace

mx::array rms_norm(const mx::array& x, const mx::array& weight, float eps) {
  require_float32("rms_norm", {x, weight});
  if (x.ndim() == 0 || weight.shape() != mx::Shape{x.shape(-1)}) {
    throw std::invalid_argument("[rms_norm] weight does not match the last axis");
  }
  return cpu_op(
      "rms_norm", x.shape(), {x, weight},
      [eps](const auto& in, auto& out) { run_rms_norm(in[0], in[1], eps, out); },
      [eps](const auto& in) {
        const auto mean = mx::mean(mx::square(in[0]), -1, true);
        return std::vector{in[0] * mx::rsqrt(mean + mx::array(eps)) * in[1]};
      });
}

mx::array layer_norm_modulated(const mx::array& x, const mx::array& scale, const mx::array& shift,
                               float eps) {
  require_float32("layer_norm_modulated", {x, scale, shift});
  const auto fits = [&](const mx::array& a) {
    return a.ndim() == 3 && (a.shape(0) == 1 || a.shape(0) == x.shape(0)) && a.shape(1) == 1 &&
           a.shape(2) == x.shape(2);
  };
  if (x.ndim() != 3 || !fits(scale) || !fits(shift)) {
    throw std::invalid_argument("[layer_norm_modulated] shapes do not match");
  }
  return cpu_op(
      "layer_norm_modulated", x.shape(), {x, scale, shift},
      [eps](const auto& in, auto& out) { run_layer_norm(in[0], in[1], in[2], eps, out); },
      [eps](const auto& in) {
        const auto centred = in[0] - mx::mean(in[0], -1, true);
        const auto variance = mx::mean(mx::square(centred), -1, true);
        const auto normal = centred * mx::rsqrt(variance + mx::array(eps));
        return std::vector{normal * (mx::array(1.0F) + in[1]) + in[2]};
      });
}

mx::array group_norm(const mx::array& x, const mx::array& weight, const mx::array& bias, int groups,
                     float eps, bool silu, const std::optional<mx::array>& moments) {
  require_float32("group_norm", {x, weight, bias});
  if (moments) require_float32("group_norm", {*moments});
  if (x.ndim() != 4 || groups <= 0 || x.shape(3) % groups != 0 ||
      weight.shape() != mx::Shape{x.shape(3)} || bias.shape() != weight.shape() ||
      (moments && moments->shape() != mx::Shape{x.shape(0), groups, 2})) {
    throw std::invalid_argument("[group_norm] shapes do not match");
  }
  const GroupNorm norm{groups, eps, silu, moments.has_value()};
  std::vector<mx::array> inputs = {mx::contiguous(x), weight, bias};
  if (moments) inputs.push_back(*moments);
  return cpu_op(
      "group_norm", x.shape(), std::move(inputs),
      [norm](const auto& in, auto& out) { run_group_norm(norm, in, out); },
      [norm](const auto& in) { return std::vector{composed_group_norm(norm, in)}; });
}

mx::array group_moments(const mx::array& x, int groups, const PixelRect& rect) {
  require_float32("group_moments", {x});
  if (x.ndim() != 4 || groups <= 0 || x.shape(3) % groups != 0 || rect.top < 0 || rect.left < 0 ||
      rect.height <= 0 || rect.width <= 0 || rect.height > x.shape(1) - rect.top ||
      rect.width > x.shape(2) - rect.left) {
    throw std::invalid_argument("[group_moments] shapes do not match");
  }
  return cpu_op(
      "group_moments", {x.shape(0), groups, 2}, {mx::contiguous(x)},
      [rect, groups](const auto& in, auto& out) {
        const int64_t width = in[0].shape(2);
        const int64_t channels = in[0].shape(3);
        std::vector<double> moments(static_cast<size_t>(2 * groups));
        for (int64_t b = 0; b < in[0].shape(0); ++b) {
          const int64_t first = (b * in[0].shape(1) + rect.top) * width + rect.left;
          cpu::group_moments(in[0].template data<float>() + first * channels,
                             {rect.height, rect.width, width}, channels, groups, moments.data());
          std::ranges::copy(moments, out.template data<float>() + b * 2 * groups);
        }
      },
      [rect, groups](const auto& in) {
        const auto part = mx::slice(
            in[0], {0, rect.top, rect.left, 0},
            {in[0].shape(0), rect.top + rect.height, rect.left + rect.width, in[0].shape(3)});
        return std::vector{composed_moments(split_groups(part, groups))};
      });
}

}  // namespace mere
