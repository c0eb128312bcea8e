#include "kernels/norm.h"

#include <algorithm>
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

void run_group_norm(const mx::array& x, const mx::array& weight, const mx::array& bias, int groups,
                    float eps, bool silu, mx::array& out) {
  const int64_t pixels = int64_t{x.shape(1)} * x.shape(2);
  const int64_t channels = x.shape(3);
  std::vector<float> scale(static_cast<size_t>(channels));
  std::vector<float> shift(static_cast<size_t>(channels));
  const DenseData<float> gains(weight);
  const DenseData<float> offsets(bias);
  for (int64_t b = 0; b < x.shape(0); ++b) {
    const float* from = x.data<float>() + b * pixels * channels;
    float* to = out.data<float>() + b * pixels * channels;
    cpu::group_norm_factors(from, pixels, channels, groups, eps, gains.data(), offsets.data(),
                            scale.data(), shift.data());
    cpu::parallel_for(pixels, grain_rows(channels), [&](int64_t begin, int64_t end) {
      cpu::scale_shift_rows(from + begin * channels, scale.data(), shift.data(), silu, end - begin,
                            channels, to + begin * channels);
    });
  }
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
                     float eps, bool silu) {
  require_float32("group_norm", {x, weight, bias});
  if (x.ndim() != 4 || groups <= 0 || x.shape(3) % groups != 0 ||
      weight.shape() != mx::Shape{x.shape(3)} || bias.shape() != weight.shape()) {
    throw std::invalid_argument("[group_norm] shapes do not match");
  }
  return cpu_op(
      "group_norm", x.shape(), {mx::contiguous(x), weight, bias},
      [groups, eps, silu](const auto& in, auto& out) {
        run_group_norm(in[0], in[1], in[2], groups, eps, silu, out);
      },
      [groups, eps, silu](const auto& in) {
        const auto& shape = in[0].shape();
        const auto split =
            mx::reshape(in[0], {shape[0], shape[1] * shape[2], groups, shape[3] / groups});
        const auto centred = split - mx::mean(split, std::vector<int>{1, 3}, true);
        const auto variance = mx::mean(mx::square(centred), std::vector<int>{1, 3}, true);
        const auto normal = mx::reshape(centred * mx::rsqrt(variance + mx::array(eps)), shape);
        const auto y = normal * in[1] + in[2];
        return std::vector{silu ? y * mx::sigmoid(y) : y};
      });
}

}  // namespace mere
