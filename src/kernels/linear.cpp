#include "kernels/linear.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

// Rows of the weight widened at a time: small enough to stay in the last-level cache, large enough
// to keep the matrix product efficient.
constexpr int64_t kPanelBytes = int64_t{2} << 20;

struct Operands {
  const mx::array& x;       // [..., in] dense float32
  const mx::array& weight;  // [out, in] or packed
  const mx::array* scales = nullptr;
  const mx::array* biases = nullptr;
};

float stored_value(const mx::array& a, int64_t index) {
  float value = 0;
  if (a.dtype() == mx::float32) return a.data<float>()[index];
  const auto* halves = a.data<uint16_t>() + index;
  a.dtype() == mx::bfloat16 ? cpu::bf16_to_f32(halves, &value, 1)
                            : cpu::f16_to_f32(halves, &value, 1);
  return value;
}

void widen_dense_row(const mx::array& weight, int64_t row, int64_t in, float* out) {
  const auto* halves = weight.data<uint16_t>() + row * in;
  if (weight.dtype() == mx::bfloat16) {
    cpu::bf16_to_f32(halves, out, static_cast<size_t>(in));
  } else {
    cpu::f16_to_f32(halves, out, static_cast<size_t>(in));
  }
}

void widen_quantized_row(const Operands& op, const LinearWeight& w, int64_t row, float* out) {
  const int64_t groups = w.in / w.group_size;
  std::vector<float> scales(static_cast<size_t>(groups));
  std::vector<float> biases(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) {
    scales[g] = stored_value(*op.scales, row * groups + g);
    biases[g] = stored_value(*op.biases, row * groups + g);
  }
  cpu::affine_to_f32(op.weight.data<uint32_t>() + row * (w.in * w.bits / 32), w.bits, scales.data(),
                     biases.data(), w.group_size, w.in, out);
}

void run_linear(const Operands& op, const LinearWeight& w, const mx::array* bias, mx::array& out) {
  const int64_t rows = static_cast<int64_t>(op.x.size()) / w.in;
  const float* x = op.x.data<float>();
  float* y = out.data<float>();
  if (!w.quantized() && op.weight.dtype() == mx::float32) {
    cpu::sgemm(true, rows, w.out, w.in, x, w.in, op.weight.data<float>(), w.in, 0.0F, y, w.out);
  } else {
    const int64_t panel = std::clamp<int64_t>(kPanelBytes / 4 / w.in, 16, w.out < 16 ? 16 : w.out);
    std::vector<float> wide(static_cast<size_t>(std::min(panel, w.out) * w.in));
    for (int64_t first = 0; first < w.out; first += panel) {
      const int64_t count = std::min(panel, w.out - first);
      cpu::parallel_for(count, std::max<int64_t>(1, 16384 / w.in), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          float* to = wide.data() + row * w.in;
          if (w.quantized()) {
            widen_quantized_row(op, w, first + row, to);
          } else {
            widen_dense_row(op.weight, first + row, w.in, to);
          }
        }
      });
      cpu::sgemm(true, rows, count, w.in, x, w.in, wide.data(), w.in, 0.0F, y + first, w.out);
    }
  }
  if (bias == nullptr) return;
  cpu::parallel_for(rows, std::max<int64_t>(1, 16384 / w.out), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      cpu::add_row(bias->data<float>(), w.out, y + row * w.out);
    }
  });
}

mx::array dense_matrix(const std::vector<mx::array>& in, const LinearWeight& w) {
  if (!w.quantized()) return mx::astype(in[1], mx::float32);
  return mx::dequantize(in[1], mx::astype(in[2], mx::float32), mx::astype(in[3], mx::float32),
                        w.group_size, w.bits);
}

void check_shapes(const mx::array& x, const LinearWeight& w, const std::optional<mx::array>& bias) {
  if (x.ndim() == 0 || x.shape(-1) != w.in || x.dtype() != mx::float32) {
    throw std::invalid_argument("[linear] input does not match the weight");
  }
  if (bias && (bias->shape() != mx::Shape{static_cast<int>(w.out)} || bias->dtype() != mx::float32)) {
    throw std::invalid_argument("[linear] bias does not match the weight");
  }
}

}  // namespace

LinearWeight dense_weight(mx::array weight) {
  if (weight.ndim() != 2) throw std::invalid_argument("[linear] a weight is a matrix");
  const int64_t out = weight.shape(0);
  const int64_t in = weight.shape(1);
  return {std::move(weight), std::nullopt, std::nullopt, 0, 0, out, in};
}

mx::array linear(const mx::array& x, const LinearWeight& w, const std::optional<mx::array>& bias) {
  check_shapes(x, w, bias);
  mx::Shape shape = x.shape();
  shape.back() = static_cast<int>(w.out);
  std::vector<mx::array> inputs = {mx::contiguous(x), w.quantized() ? w.weight : mx::contiguous(w.weight)};
  if (w.quantized()) {
    inputs.push_back(*w.scales);
    inputs.push_back(*w.biases);
  }
  if (bias) inputs.push_back(*bias);
  // The closures keep only the description; the arrays come back as inputs.
  const LinearWeight description{mx::array(0.0F), std::nullopt, std::nullopt, w.bits, w.group_size,
                                 w.out,           w.in};
  const bool has_bias = bias.has_value();
  return cpu_op(
      "linear", shape, std::move(inputs),
      [description, has_bias](const auto& in, auto& out) {
        Operands op{in[0], in[1]};
        if (description.quantized()) {
          op.scales = &in[2];
          op.biases = &in[3];
        }
        run_linear(op, description, has_bias ? &in.back() : nullptr, out);
      },
      [description, has_bias](const auto& in) {
        auto y = mx::matmul(in[0], mx::transpose(dense_matrix(in, description)));
        return std::vector{has_bias ? y + in.back() : y};
      });
}

}  // namespace mere
