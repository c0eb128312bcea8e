#include "kernels/conv2d.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

// A weight as float32 with strides of the axes out, height, width, in.
class ConvWeight {
 public:
  explicit ConvWeight(const mx::array& a) {
    // A permuted view covers its buffer without gaps: it is widened in the order of memory and
    // keeps its strides. Other views are copied.
    const bool permuted = a.flags().contiguous && a.data_size() == a.size();
    if (permuted) {
      std::copy(a.strides().begin(), a.strides().end(), strides_);
    } else {
      int64_t stride = 1;
      for (int axis = 3; axis >= 0; stride *= a.shape(axis--)) strides_[axis] = stride;
    }
    // The stride of an axis of size 1 means nothing, but oneDNN refuses one that looks like
    // overlap.
    for (int axis = 0; axis < 4; ++axis) {
      if (a.shape(axis) == 1) strides_[axis] = static_cast<int64_t>(a.size());
    }
    if (a.dtype() == mx::float32) {
      if (!permuted) wide_ = dense_copy<float>(a);
      data_ = permuted ? a.data<float>() : wide_.data();
      return;
    }
    std::vector<uint16_t> copy;
    if (!permuted) copy = dense_copy<uint16_t>(a);
    wide_.resize(a.size());
    const auto widen = a.dtype() == mx::bfloat16 ? &cpu::bf16_to_f32 : &cpu::f16_to_f32;
    widen(permuted ? a.data<uint16_t>() : copy.data(), wide_.data(), wide_.size());
    data_ = wide_.data();
  }

  const float* data() const { return data_; }
  int64_t stride(int axis) const { return strides_[axis]; }

 private:
  std::vector<float> wide_;
  const float* data_ = nullptr;
  int64_t strides_[4] = {};
};

// in: x [B, H, W, Cin] dense, weight [Cout, kh, kw, Cin], optional bias.
void run_conv2d(const std::vector<mx::array>& in, int stride, const ConvPadding& padding,
                mx::array& out) {
  const mx::array& x = in[0];
  const ConvWeight weight(in[1]);
  const cpu::ConvShape shape{
      .batch = x.shape(0),
      .in_height = x.shape(1),
      .in_width = x.shape(2),
      .in_channels = x.shape(3),
      .out_height = out.shape(1),
      .out_width = out.shape(2),
      .out_channels = out.shape(3),
      .kernel_height = in[1].shape(1),
      .kernel_width = in[1].shape(2),
      .stride = stride,
      .pad_top = padding.top,
      .pad_bottom = padding.bottom,
      .pad_left = padding.left,
      .pad_right = padding.right,
      .weight_strides = {weight.stride(0), weight.stride(1), weight.stride(2), weight.stride(3)}};
  std::optional<DenseData<float>> bias;
  if (in.size() > 2) bias.emplace(in[2]);
  cpu::conv2d(shape, x.data<float>(), weight.data(), bias ? bias->data() : nullptr,
              out.data<float>());
}

bool is_floating(const mx::array& a) {
  return a.dtype() == mx::float32 || a.dtype() == mx::bfloat16 || a.dtype() == mx::float16;
}

}  // namespace

mx::array conv2d(const mx::array& x, const mx::array& weight, const std::optional<mx::array>& bias,
                 int stride, const ConvPadding& padding) {
  require_float32("conv2d", {x});
  if (bias) require_float32("conv2d", {*bias});
  if (x.ndim() != 4 || weight.ndim() != 4 || !is_floating(weight) || weight.size() == 0 ||
      x.shape(3) != weight.shape(3) || stride < 1 ||
      std::min({padding.top, padding.bottom, padding.left, padding.right}) < 0 ||
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
        const auto padded = mx::pad(
            in[0], {{0, 0}, {padding.top, padding.bottom}, {padding.left, padding.right}, {0, 0}});
        auto y = mx::conv2d(padded, mx::astype(in[1], mx::float32), {stride, stride});
        return std::vector{in.size() > 2 ? y + in[2] : y};
      });
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
