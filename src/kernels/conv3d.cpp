#include "kernels/conv3d.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/conv_weight.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int64_t kMostTermFloats = int64_t{16} << 20;  // of one term of the sum over kd
constexpr int64_t kGrainFloats = 16384;                 // least work worth a thread

// y [rows, width] += term, or the bias (zeros without one) when there is no term.
void add_rows(const float* term, int64_t rows, int64_t width, float* y) {
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / width);
  cpu::parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    cpu::add_row(term + begin * width, (end - begin) * width, y + begin * width);
  });
}

void fill_rows(const float* bias, int64_t rows, int64_t width, float* y) {
  for (int64_t row = 0; row < rows; ++row) {
    if (bias == nullptr) {
      std::fill_n(y + row * width, width, 0.0F);
    } else {
      std::copy_n(bias, width, y + row * width);
    }
  }
}

// in: x [B, D, H, W, Cin] dense, weight [Cout, kd, kh, kw, Cin], optional bias.
void run_conv3d(const std::vector<mx::array>& in, const Conv3dStride& stride,
                const Conv3dPadding& padding, mx::array& out) {
  const mx::array& x = in[0];
  const ConvWeight weight(in[1]);
  std::optional<DenseData<float>> bias;
  if (in.size() > 2) bias.emplace(in[2]);
  const float* const bias_data = bias ? bias->data() : nullptr;
  cpu::ConvShape shape{
      .batch = 0,  // slices at a time
      .in_height = x.shape(2),
      .in_width = x.shape(3),
      .in_channels = x.shape(4),
      .out_height = out.shape(2),
      .out_width = out.shape(3),
      .out_channels = out.shape(4),
      .kernel_height = in[1].shape(2),
      .kernel_width = in[1].shape(3),
      .stride = stride.plane,
      .pad_top = padding.top,
      .pad_bottom = padding.bottom,
      .pad_left = padding.left,
      .pad_right = padding.right,
      .weight_strides = {weight.stride(0), weight.stride(2), weight.stride(3), weight.stride(4)}};
  const int64_t in_depth = x.shape(1);
  const int64_t out_depth = out.shape(1);
  const int64_t in_slice = shape.in_height * shape.in_width * shape.in_channels;
  const int64_t out_pixels = shape.out_height * shape.out_width;
  const int64_t out_slice = out_pixels * shape.out_channels;
  // Slices that lie side by side in x and in out make one batch.
  const int64_t most_slices =
      stride.depth > 1 ? 1 : std::max<int64_t>(1, kMostTermFloats / out_slice);
  std::unique_ptr<float[]> term;
  for (int64_t b = 0; b < x.shape(0); ++b) {
    const float* from = x.data<float>() + b * in_depth * in_slice;
    float* to = out.data<float>() + b * out_depth * out_slice;
    std::vector<bool> begun(static_cast<size_t>(out_depth), false);
    // From the last step down: in a causal convolution that one reaches every slice.
    for (int64_t step = in[1].shape(1) - 1; step >= 0; --step) {
      // Output slice o reads input slice o * stride + step - front.
      const int64_t shift = step - padding.front;
      const int64_t first = shift >= 0 ? 0 : (-shift + stride.depth - 1) / stride.depth;
      const int64_t end =
          shift >= in_depth ? 0 : std::min(out_depth, (in_depth - 1 - shift) / stride.depth + 1);
      for (int64_t o = first; o < end; o += shape.batch) {
        shape.batch = 1;
        while (shape.batch < most_slices && o + shape.batch < end &&
               begun[o + shape.batch] == begun[o]) {
          ++shape.batch;
        }
        const float* slices = from + (o * stride.depth + shift) * in_slice;
        float* const sum = to + o * out_slice;
        if (!begun[o]) {
          cpu::conv2d(shape, slices, weight.data() + step * weight.stride(1), bias_data, sum);
          std::fill_n(begun.begin() + o, shape.batch, true);
          continue;
        }
        if (!term) {
          const int64_t floats = std::min(most_slices, out_depth) * out_slice;
          term = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(floats));
        }
        cpu::conv2d(shape, slices, weight.data() + step * weight.stride(1), nullptr, term.get());
        add_rows(term.get(), shape.batch * out_pixels, shape.out_channels, sum);
      }
    }
    for (int64_t o = 0; o < out_depth; ++o) {  // slices that see padding alone
      if (!begun[o]) fill_rows(bias_data, out_pixels, shape.out_channels, to + o * out_slice);
    }
  }
}

mx::array conv3d_fallback(const std::vector<mx::array>& in, const Conv3dStride& stride,
                          const Conv3dPadding& p) {
  const auto padded =
      mx::pad(in[0], {{0, 0}, {p.front, p.back}, {p.top, p.bottom}, {p.left, p.right}, {0, 0}});
  const auto y = mx::conv3d(padded, mx::astype(in[1], mx::float32),
                            {stride.depth, stride.plane, stride.plane});
  return in.size() > 2 ? y + in[2] : y;
}

}  // namespace

mx::array conv3d(const mx::array& x, const mx::array& weight, const std::optional<mx::array>& bias,
                 const Conv3dStride& stride, const Conv3dPadding& padding) {
  require_float32("conv3d", {x});
  if (bias) require_float32("conv3d", {*bias});
  const auto& p = padding;
  if (x.ndim() != 5 || weight.ndim() != 5 || !is_floating(weight) || weight.size() == 0 ||
      x.shape(4) != weight.shape(4) || stride.depth < 1 || stride.plane < 1 ||
      std::min({p.front, p.back, p.top, p.bottom, p.left, p.right}) < 0 ||
      (bias && bias->shape() != mx::Shape{weight.shape(0)})) {
    throw std::invalid_argument("[conv3d] shapes do not match");
  }
  const int around[] = {p.front + p.back, p.top + p.bottom, p.left + p.right};
  const int steps[] = {stride.depth, stride.plane, stride.plane};
  mx::Shape shape = {x.shape(0)};
  for (int axis = 0; axis < 3; ++axis) {
    const int room = x.shape(1 + axis) + around[axis] - weight.shape(1 + axis);
    if (x.shape(1 + axis) == 0 || room < 0) {
      throw std::invalid_argument("[conv3d] the input is smaller than the kernel");
    }
    shape.push_back(room / steps[axis] + 1);
  }
  shape.push_back(weight.shape(0));
  std::vector<mx::array> inputs = {mx::contiguous(x), weight};
  if (bias) inputs.push_back(*bias);
  return cpu_op(
      "conv3d", shape, std::move(inputs),
      [stride, padding](const auto& in, auto& out) { run_conv3d(in, stride, padding, out); },
      [stride, padding](const auto& in) {
        return std::vector{conv3d_fallback(in, stride, padding)};
      });
}

}  // namespace mere
