#include "kernels/conv2d.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

cpu::ConvShape conv_shape(const mx::array& x, const mx::array& weight, const mx::Shape& out,
                          int stride, const ConvPadding& padding) {
  cpu::ConvShape shape{};
  shape.batch = x.shape(0);
  shape.in_height = x.shape(1);
  shape.in_width = x.shape(2);
  shape.in_channels = x.shape(3);
  shape.out_height = out[1];
  shape.out_width = out[2];
  shape.out_channels = out[3];
  shape.kernel_height = weight.shape(1);
  shape.kernel_width = weight.shape(2);
  shape.stride = stride;
  shape.pad_top = padding.top;
  shape.pad_bottom = padding.bottom;
  shape.pad_left = padding.left;
  shape.pad_right = padding.right;
  for (int axis = 0; axis < 4; ++axis) shape.weight_strides[axis] = weight.strides(axis);
  return shape;
}

void run_conv2d(const std::vector<mx::array>& in, int stride, const ConvPadding& padding,
                mx::array& out) {
  const mx::array& weight = in[1];
  const cpu::ConvShape shape = conv_shape(in[0], weight, out.shape(), stride, padding);
  std::vector<float> wide;
  const float* weights = nullptr;
  if (weight.dtype() == mx::float32) {
    weights = weight.data<float>();
  } else {
    // A permuted view covers its buffer without gaps, so the buffer is widened in place order and
    // keeps its strides.
    wide.resize(weight.size());
    if (weight.dtype() == mx::bfloat16) {
      cpu::bf16_to_f32(weight.data<uint16_t>(), wide.data(), wide.size());
    } else {
      cpu::f16_to_f32(weight.data<uint16_t>(), wide.data(), wide.size());
    }
    weights = wide.data();
  }
  cpu::conv2d(shape, in[0].data<float>(), weights, in.size() > 2 ? in[2].data<float>() : nullptr,
              out.data<float>());
}

}  // namespace

mx::array conv2d(const mx::array& x, const mx::array& weight, const std::optional<mx::array>& bias,
                 int stride, const ConvPadding& padding) {
  if (x.ndim() != 4 || weight.ndim() != 4 || x.shape(3) != weight.shape(3) || stride < 1 ||
      (bias && bias->shape() != mx::Shape{weight.shape(0)})) {
    throw std::invalid_argument("[conv2d] shapes do not match");
  }
  const int padded_height = x.shape(1) + padding.top + padding.bottom;
  const int padded_width = x.shape(2) + padding.left + padding.right;
  if (padded_height < weight.shape(1) || padded_width < weight.shape(2)) {
    throw std::invalid_argument("[conv2d] the input is smaller than the kernel");
  }
  const mx::Shape shape = {x.shape(0), (padded_height - weight.shape(1)) / stride + 1,
                           (padded_width - weight.shape(2)) / stride + 1, weight.shape(0)};
  std::vector<mx::array> inputs = {mx::contiguous(x), weight};
  if (bias) inputs.push_back(*bias);
  return cpu_op(
      "conv2d", shape, std::move(inputs),
      [stride, padding](const auto& in, auto& out) { run_conv2d(in, stride, padding, out); },
      [stride, padding](const auto& in) {
        const auto padded =
            mx::pad(in[0], {{0, 0}, {padding.top, padding.bottom}, {padding.left, padding.right},
                            {0, 0}});
        auto y = mx::conv2d(padded, mx::astype(in[1], mx::float32), {stride, stride});
        return std::vector{in.size() > 2 ? y + in[2] : y};
      });
}

mx::array upsample_nearest_2x(const mx::array& x) {
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
      [](const auto& in) {
        return std::vector{mx::repeat(mx::repeat(in[0], 2, 1), 2, 2)};
      });
}

}  // namespace mere
