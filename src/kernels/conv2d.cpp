#include "kernels/conv2d.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/bf16_panels.h"
#include "kernels/cpu/conv_weight.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/winograd.h"
#include "kernels/cpu_op.h"
#include "kernels/norm.h"
#include "kernels/precision.h"

namespace mere {
namespace {

namespace mx = mlx::core;

// A weight in its stored type, the [kh, kw, Cin] of every output channel dense in some order.
class StoredWeight {
 public:
  explicit StoredWeight(const mx::array& a) {
    type_ = a.dtype() == mx::float32    ? cpu::Stored::kFloat32
            : a.dtype() == mx::bfloat16 ? cpu::Stored::kBFloat16
                                        : cpu::Stored::kFloat16;
    if (channels_are_dense(a)) {
      data_ = type_ == cpu::Stored::kFloat32 ? static_cast<const void*>(a.data<float>())
                                             : a.data<uint16_t>();
      std::copy(a.strides().begin(), a.strides().end(), strides_);
      return;
    }
    if (type_ == cpu::Stored::kFloat32) {
      floats_ = dense_copy<float>(a);
      data_ = floats_.data();
    } else {
      halves_ = dense_copy<uint16_t>(a);
      data_ = halves_.data();
    }
    int64_t stride = 1;
    for (int axis = 3; axis >= 0; stride *= a.shape(axis--)) strides_[axis] = stride;
  }

  cpu::WinogradWeight get() const {
    return {type_, data_, {strides_[0], strides_[1], strides_[2], strides_[3]}};
  }

 private:
  static bool channels_are_dense(const mx::array& a) {
    int axes[] = {1, 2, 3};
    std::ranges::sort(axes, {}, [&](int axis) { return a.strides(axis); });
    int64_t stride = 1;
    for (const int axis : axes) {
      if (a.shape(axis) == 1) continue;
      if (a.strides(axis) != stride) return false;
      stride *= a.shape(axis);
    }
    return true;
  }

  cpu::Stored type_;
  const void* data_ = nullptr;
  int64_t strides_[4] = {};
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

enum class Path { kWinograd, kProduct, kOneDnn };

Path path_of(const mx::array& weight, int stride, const ConvPadding& p) {
  const int height = weight.shape(1);
  const int width = weight.shape(2);
  if (stride != 1) return Path::kOneDnn;
  if (height == 3 && width == 3) return Path::kWinograd;
  const bool padded = std::max({p.top, p.bottom, p.left, p.right}) > 0;
  return height == 1 && width == 1 && !padded ? Path::kProduct : Path::kOneDnn;
}

// A convolution whose shapes were checked: everything but its arrays.
struct Conv {
  int stride;
  ConvPadding padding;
  bool with_bias, with_norm, with_moments, with_residual, upsample;
  int groups = 1;
  float eps = 0;

  // Places in the list of inputs: x, weight, bias, weight, bias and moments of the norm, residual.
  size_t norm_at() const { return with_bias ? 3 : 2; }
  size_t moments_at() const { return norm_at() + 2; }
  size_t residual_at() const { return norm_at() + (with_norm ? 2 : 0) + (with_moments ? 1 : 0); }
};

cpu::ConvShape shape_of(const Conv& conv, const std::vector<mx::array>& in, const mx::array& out) {
  const int factor = conv.upsample ? 2 : 1;
  return {.batch = in[0].shape(0),
          .in_height = int64_t{in[0].shape(1)} * factor,
          .in_width = int64_t{in[0].shape(2)} * factor,
          .in_channels = in[0].shape(3),
          .out_height = out.shape(1),
          .out_width = out.shape(2),
          .out_channels = out.shape(3),
          .kernel_height = in[1].shape(1),
          .kernel_width = in[1].shape(2),
          .stride = conv.stride,
          .pad_top = conv.padding.top,
          .pad_bottom = conv.padding.bottom,
          .pad_left = conv.padding.left,
          .pad_right = conv.padding.right,
          .weight_strides = {}};
}

// silu(scale * x + shift) is what the convolution reads; [B, Cin] each, empty without a norm.
struct NormFactors {
  std::vector<float> scale, shift;
};

NormFactors norm_factors(const Conv& conv, const std::vector<mx::array>& in) {
  NormFactors factors;
  if (!conv.with_norm) return factors;
  const DenseData<float> gains(in[conv.norm_at()]);
  const DenseData<float> offsets(in[conv.norm_at() + 1]);
  const int64_t batch = in[0].shape(0);
  const int64_t pixels = int64_t{in[0].shape(1)} * in[0].shape(2);
  const int64_t channels = in[0].shape(3);
  factors.scale.resize(static_cast<size_t>(batch * channels));
  factors.shift.resize(factors.scale.size());
  std::optional<DenseData<float>> given;
  if (conv.with_moments) given.emplace(in[conv.moments_at()]);
  for (int64_t b = 0; b < batch; ++b) {
    cpu::group_norm_factors(in[0].data<float>() + b * pixels * channels, pixels,
                            given ? given->data() + b * 2 * conv.groups : nullptr, channels,
                            conv.groups, conv.eps, gains.data(), offsets.data(),
                            factors.scale.data() + b * channels,
                            factors.shift.data() + b * channels);
  }
  return factors;
}

void run_winograd(const Conv& conv, const std::vector<mx::array>& in, mx::array& out) {
  const NormFactors norm = norm_factors(conv, in);
  std::optional<DenseData<float>> bias;
  if (conv.with_bias) bias.emplace(in[2]);
  const StoredWeight weight(in[1]);
  cpu::winograd_conv2d(shape_of(conv, in, out),
                       {in[0].data<float>(), conv.upsample,
                        conv.with_norm ? norm.scale.data() : nullptr, norm.shift.data()},
                       weight.get(), bias ? bias->data() : nullptr,
                       conv.with_residual ? in[conv.residual_at()].data<float>() : nullptr,
                       out.data<float>());
}

// What a convolution reads, in bfloat16 [B, H, W, Cin]: x normalised and enlarged.
std::vector<uint16_t> narrow_input(const Conv& conv, const mx::array& x, const NormFactors& norm) {
  const int64_t factor = conv.upsample ? 2 : 1;
  const int64_t height = x.shape(1);
  const int64_t width = x.shape(2);
  const int64_t channels = x.shape(3);
  const int64_t wide = width * factor * channels;
  std::vector<uint16_t> narrow(x.size() * static_cast<size_t>(factor * factor));
  cpu::parallel_for(x.shape(0) * height, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> changed(static_cast<size_t>(width * channels));
    for (int64_t row = begin; row < end; ++row) {
      const float* from = x.data<float>() + row * width * channels;
      if (conv.with_norm) {
        const int64_t at = row / height * channels;
        cpu::scale_shift_rows(from, norm.scale.data() + at, norm.shift.data() + at, true, width,
                              channels, changed.data());
        from = changed.data();
      }
      uint16_t* to = narrow.data() + row * factor * wide;
      if (!conv.upsample) {
        cpu::f32_to_bf16(from, to, changed.size());
        continue;
      }
      for (int64_t col = 0; col < width; ++col) {
        uint16_t* pixel = to + 2 * col * channels;
        cpu::f32_to_bf16(from + col * channels, pixel, static_cast<size_t>(channels));
        std::copy_n(pixel, channels, pixel + channels);
      }
      std::copy_n(to, wide, to + wide);
    }
  });
  return narrow;
}

// Direct, but at the rate of bfloat16 products, which beats saving multiplications.
void run_bf16(const Conv& conv, const std::vector<mx::array>& in, mx::array& out) {
  const std::vector<uint16_t> narrow = narrow_input(conv, in[0], norm_factors(conv, in));
  const StoredWeight stored(in[1]);
  const cpu::WinogradWeight weight = stored.get();
  cpu::ConvShape shape = shape_of(conv, in, out);
  std::ranges::copy(weight.strides, shape.weight_strides);
  std::optional<DenseData<float>> bias;
  if (conv.with_bias) bias.emplace(in[2]);
  float* y = out.data<float>();
  cpu::conv2d_bf16(shape, narrow.data(), static_cast<const uint16_t*>(weight.data),
                   bias ? bias->data() : nullptr, y);
  if (!conv.with_residual) return;
  const float* residual = in[conv.residual_at()].data<float>();
  const int64_t row = shape.out_width * shape.out_channels;
  cpu::parallel_for(shape.batch * shape.out_height, 1, [&](int64_t begin, int64_t end) {
    cpu::add_row(residual + begin * row, (end - begin) * row, y + begin * row);
  });
}

bool bf16_pays(const mx::array& weight) {
  return precision() == Precision::kAuto && weight.dtype() == mx::bfloat16 &&
         weight.shape(3) >= 16 && cpu::has_bf16_panels();
}

// A 1x1 convolution is the product of the pixels with the weight.
void run_product(const Conv& conv, const std::vector<mx::array>& in, mx::array& out) {
  const int64_t k = in[0].shape(3);
  const int64_t n = out.shape(3);
  const float* x = in[0].data<float>();
  float* y = out.data<float>();
  const StoredWeight stored(in[1]);
  const cpu::WinogradWeight weight = stored.get();
  const auto* rows = static_cast<const std::byte*>(weight.data);
  std::optional<DenseData<float>> bias;
  if (conv.with_bias) bias.emplace(in[2]);
  const float* residual = conv.with_residual ? in[conv.residual_at()].data<float>() : nullptr;
  const cpu::GemmTile tile = cpu::gemm_tile();
  cpu::multiply({.m = static_cast<int64_t>(out.size()) / n,
                 .n = n,
                 .k = k,
                 .pack_a =
                     [&](int64_t row, int64_t count, int64_t at, int64_t depth, std::byte* to) {
                       cpu::pack_rows(cpu::Stored::kFloat32, x + row * k + at, k, count, depth,
                                      tile.rows, reinterpret_cast<float*>(to));
                     },
                 .pack_b =
                     [&](int64_t row, int64_t count, int64_t at, int64_t depth, std::byte* to) {
                       const int64_t first = row * weight.strides[0] + at;
                       cpu::pack_rows(weight.type, rows + first * cpu::stored_size(weight.type),
                                      weight.strides[0], count, depth, tile.columns,
                                      reinterpret_cast<float*>(to));
                     },
                 .finish =
                     [&](int64_t row, int64_t count, int64_t column, int64_t width) {
                       for (int64_t r = row; r < row + count; ++r) {
                         float* to = y + r * n + column;
                         if (bias) cpu::add_row(bias->data() + column, width, to);
                         if (residual) cpu::add_row(residual + r * n + column, width, to);
                       }
                     }},
                y, n);
}

void run_onednn(const Conv& conv, const std::vector<mx::array>& in, mx::array& out) {
  const ConvWeight weight(in[1]);
  cpu::ConvShape shape = shape_of(conv, in, out);
  for (int axis = 0; axis < 4; ++axis) shape.weight_strides[axis] = weight.stride(axis);
  std::optional<DenseData<float>> bias;
  if (conv.with_bias) bias.emplace(in[2]);
  cpu::conv2d(shape, in[0].data<float>(), weight.data(), bias ? bias->data() : nullptr,
              out.data<float>());
}

std::vector<mx::array> composed(const Conv& conv, const std::vector<mx::array>& in) {
  mx::array x = in[0];
  if (conv.with_norm) {
    const size_t at = conv.norm_at();
    x = group_norm(x, in[at], in[at + 1], conv.groups, conv.eps, true,
                   conv.with_moments ? std::optional(in[conv.moments_at()]) : std::nullopt);
  }
  if (conv.upsample) x = upsample_nearest_2x(x);
  const ConvPadding& p = conv.padding;
  x = mx::pad(x, {{0, 0}, {p.top, p.bottom}, {p.left, p.right}, {0, 0}});
  mx::array y = mx::conv2d(x, mx::astype(in[1], mx::float32), {conv.stride, conv.stride});
  if (conv.with_bias) y = y + in[2];
  if (conv.with_residual) y = y + in[conv.residual_at()];
  return {y};
}

}  // namespace

mx::array conv2d(const mx::array& x, const mx::array& weight, const std::optional<mx::array>& bias,
                 int stride, const ConvPadding& padding) {
  return conv2d(x, weight, bias, stride, padding, {});
}

mx::array conv2d(const mx::array& x, const mx::array& weight, const std::optional<mx::array>& bias,
                 int stride, const ConvPadding& padding, const ConvFusion& fusion) {
  const auto& [norm, upsample, residual] = fusion;
  require_float32("conv2d", {x});
  if (bias) require_float32("conv2d", {*bias});
  if (norm) require_float32("conv2d", {norm->weight, norm->bias});
  if (residual) require_float32("conv2d", {*residual});
  if (x.ndim() != 4 || weight.ndim() != 4 || !is_floating(weight) || weight.size() == 0 ||
      x.shape(3) != weight.shape(3) || stride < 1 ||
      std::min({padding.top, padding.bottom, padding.left, padding.right}) < 0 ||
      (bias && bias->shape() != mx::Shape{weight.shape(0)})) {
    throw std::invalid_argument("[conv2d] shapes do not match");
  }
  if (norm &&
      (norm->groups <= 0 || x.shape(3) % norm->groups != 0 ||
       norm->weight.shape() != mx::Shape{x.shape(3)} ||
       norm->bias.shape() != norm->weight.shape() ||
       (norm->moments && (norm->moments->dtype() != mx::float32 ||
                          norm->moments->shape() != mx::Shape{x.shape(0), norm->groups, 2})))) {
    throw std::invalid_argument("[conv2d] the norm does not match");
  }
  const int factor = upsample ? 2 : 1;
  const int padded_height = x.shape(1) * factor + padding.top + padding.bottom;
  const int padded_width = x.shape(2) * factor + padding.left + padding.right;
  if (padded_height < weight.shape(1) || padded_width < weight.shape(2)) {
    throw std::invalid_argument("[conv2d] the input is smaller than the kernel");
  }
  const mx::Shape shape = {x.shape(0), (padded_height - weight.shape(1)) / stride + 1,
                           (padded_width - weight.shape(2)) / stride + 1, weight.shape(0)};
  if (residual && residual->shape() != shape) {
    throw std::invalid_argument("[conv2d] the residual does not match the result");
  }
  const Path path = path_of(weight, stride, padding);
  if (path != Path::kWinograd && (norm || upsample)) {
    mx::array changed = x;
    if (norm) {
      changed =
          group_norm(x, norm->weight, norm->bias, norm->groups, norm->eps, true, norm->moments);
    }
    if (upsample) changed = upsample_nearest_2x(changed);
    return conv2d(changed, weight, bias, stride, padding, {.residual = residual});
  }
  if (path == Path::kOneDnn && residual) {
    return conv2d(x, weight, bias, stride, padding, {}) + *residual;
  }
  Conv conv{.stride = stride,
            .padding = padding,
            .with_bias = bias.has_value(),
            .with_norm = norm.has_value(),
            .with_moments = norm && norm->moments,
            .with_residual = residual.has_value(),
            .upsample = upsample};
  std::vector<mx::array> inputs = {mx::contiguous(x), weight};
  if (bias) inputs.push_back(*bias);
  if (norm) {
    conv.groups = norm->groups;
    conv.eps = norm->eps;
    inputs.insert(inputs.end(), {norm->weight, norm->bias});
    if (norm->moments) inputs.push_back(*norm->moments);
  }
  if (residual) inputs.push_back(mx::contiguous(*residual));
  const auto run = path == Path::kWinograd  ? &run_winograd
                   : path == Path::kProduct ? &run_product
                                            : &run_onednn;
  return cpu_op(
      "conv2d", shape, std::move(inputs),
      [conv, run](const auto& in, auto& out) {
        (run == &run_winograd && bf16_pays(in[1]) ? &run_bf16 : run)(conv, in, out);
      },
      [conv](const auto& in) { return composed(conv, in); });
}

mx::array upsample_nearest_2x(const mx::array& x) {
  require_float32("upsample_nearest_2x", {x});
  if (x.ndim() != 4) throw std::invalid_argument("[upsample_nearest_2x] needs [B, H, W, C]");
  const mx::Shape shape = {x.shape(0), 2 * x.shape(1), 2 * x.shape(2), x.shape(3)};
  return cpu_op(
      "upsample_nearest_2x", shape, {mx::contiguous(x)},
      [](const auto& in, auto& out) {
        const int64_t width = in[0].shape(2);
        const int64_t channels = in[0].shape(3);
        const int64_t rows = int64_t{in[0].shape(0)} * in[0].shape(1);
        const size_t pixel_bytes = static_cast<size_t>(channels) * sizeof(float);
        cpu::parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            const float* from = in[0].template data<float>() + row * width * channels;
            float* upper = out.template data<float>() + row * 4 * width * channels;
            for (int64_t col = 0; col < width; ++col) {
              std::memcpy(upper + 2 * col * channels, from + col * channels, pixel_bytes);
              std::memcpy(upper + (2 * col + 1) * channels, from + col * channels, pixel_bytes);
            }
            std::memcpy(upper + 2 * width * channels, upper, 2 * width * pixel_bytes);
          }
        });
      },
      [](const auto& in) { return std::vector{mx::repeat(mx::repeat(in[0], 2, 1), 2, 2)}; });
}

}  // namespace mere
