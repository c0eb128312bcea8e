#include "kernels/linear.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

// Rows of the weight widened at a time: small enough to stay in the last-level cache, large enough
// to keep the matrix product efficient.
constexpr int64_t kPanelBytes = int64_t{2} << 20;
constexpr int64_t kLeastPanelRows = 16;
constexpr int64_t kGrainFloats = 16384;  // least work worth a thread

bool is_floating(const mx::array& a) {
  return a.dtype() == mx::float32 || a.dtype() == mx::bfloat16 || a.dtype() == mx::float16;
}

// A float32 array as a matrix of equally spaced rows; copied when it is not stored so.
class FloatMatrix {
 public:
  explicit FloatMatrix(const mx::array& a) : rows_(a), stride_(rows_.spacing().value_or(0)) {
    if (stride_ != 0) return;
    copy_ = dense_copy<float>(a);
    stride_ = rows_.width();
  }

  const float* data() const { return copy_.empty() ? rows_.row(0) : copy_.data(); }
  int64_t stride() const { return stride_; }

 private:
  Rows<float> rows_;
  std::vector<float> copy_;
  int64_t stride_;
};

// Rows of a float32, f16 or bf16 array, widened one at a time.
class WidenedRows {
 public:
  explicit WidenedRows(const mx::array& a) : bf16_(a.dtype() == mx::bfloat16) {
    if (a.dtype() == mx::float32) {
      floats_.emplace(a);
    } else {
      halves_.emplace(a);
    }
  }

  void widen(int64_t row, float* out) const {
    if (floats_) {
      std::copy_n(floats_->row(row), floats_->width(), out);
      return;
    }
    const auto widen = bf16_ ? &cpu::bf16_to_f32 : &cpu::f16_to_f32;
    widen(halves_->row(row), out, static_cast<size_t>(halves_->width()));
  }

 private:
  bool bf16_;
  std::optional<Rows<float>> floats_;
  std::optional<Rows<uint16_t>> halves_;
};

// Widens rows [begin, end) of the weight to `out`.
using WidenRows = std::function<void(int64_t begin, int64_t end, float* out)>;

WidenRows dense_rows(const mx::array& weight, int64_t in) {
  return
      [rows = std::make_shared<WidenedRows>(weight), in](int64_t begin, int64_t end, float* out) {
        for (int64_t row = begin; row < end; ++row, out += in) rows->widen(row, out);
      };
}

WidenRows quantized_rows(const std::vector<mx::array>& in, const LinearWeight& w) {
  struct Stored {
    Rows<uint32_t> codes;
    WidenedRows scales, biases;
  };
  const auto stored = std::make_shared<Stored>(
      Stored{Rows<uint32_t>(in[1]), WidenedRows(in[2]), WidenedRows(in[3])});
  return [stored, bits = w.bits, group_size = w.group_size, columns = w.in](
             int64_t begin, int64_t end, float* out) {
    std::vector<float> scales(static_cast<size_t>(columns / group_size));
    std::vector<float> biases(scales.size());
    for (int64_t row = begin; row < end; ++row, out += columns) {
      stored->scales.widen(row, scales.data());
      stored->biases.widen(row, biases.data());
      cpu::affine_to_f32(stored->codes.row(row), bits, scales.data(), biases.data(), group_size,
                         columns, out);
    }
  };
}

// y [rows, out] = x W^T panel by panel.
void multiply_widened(const FloatMatrix& x, int64_t rows, const LinearWeight& w,
                      const WidenRows& widen, float* y) {
  const auto per_panel = static_cast<int64_t>(kPanelBytes / sizeof(float)) / w.in;
  const int64_t panel = std::min(w.out, std::max(kLeastPanelRows, per_panel));
  const auto wide = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(panel * w.in));
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / w.in);
  for (int64_t first = 0; first < w.out; first += panel) {
    const int64_t count = std::min(panel, w.out - first);
    cpu::parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      widen(first + begin, first + end, wide.get() + begin * w.in);
    });
    cpu::sgemm(true, rows, count, w.in, x.data(), x.stride(), wide.get(), w.in, 0.0F, y + first,
               w.out);
  }
}

// in: x, weight, then scales and biases when quantised, then the bias when there is one.
void run_linear(const std::vector<mx::array>& in, const LinearWeight& w, bool has_bias,
                mx::array& out) {
  const FloatMatrix x(in[0]);
  const int64_t rows = static_cast<int64_t>(in[0].size()) / w.in;
  float* y = out.data<float>();
  if (w.quantized()) {
    multiply_widened(x, rows, w, quantized_rows(in, w), y);
  } else if (in[1].dtype() == mx::float32) {
    const FloatMatrix weight(in[1]);
    cpu::sgemm(true, rows, w.out, w.in, x.data(), x.stride(), weight.data(), weight.stride(), 0.0F,
               y, w.out);
  } else {
    multiply_widened(x, rows, w, dense_rows(in[1], w.in), y);
  }
  if (!has_bias) return;
  const DenseData<float> bias(in.back());
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / w.out);
  cpu::parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) cpu::add_row(bias.data(), w.out, y + row * w.out);
  });
}

mx::array dense_matrix(const std::vector<mx::array>& in, const LinearWeight& w) {
  if (!w.quantized()) return mx::astype(in[1], mx::float32);
  return mx::dequantize(in[1], mx::astype(in[2], mx::float32), mx::astype(in[3], mx::float32),
                        w.group_size, w.bits);
}

void check_weight(const LinearWeight& w) {
  const auto is_matrix = [&](const mx::array& a, int64_t columns) {
    return a.ndim() == 2 && a.shape(0) == w.out && a.shape(1) == columns;
  };
  if (w.out < 1 || w.in < 1) throw std::invalid_argument("[linear] the weight is empty");
  if (!w.quantized()) {
    if (is_matrix(w.weight, w.in) && is_floating(w.weight)) return;
    throw std::invalid_argument("[linear] a dense weight is a floating matrix [out, in]");
  }
  const bool known_bits = (w.bits >= 1 && w.bits <= 6) || w.bits == 8;
  if (!known_bits || w.group_size < 32 || w.group_size % 32 != 0 || w.in % w.group_size != 0) {
    throw std::invalid_argument("[linear] unknown quantisation");
  }
  const int64_t groups = w.in / w.group_size;
  if (!w.scales || !w.biases || w.weight.dtype() != mx::uint32 ||
      !is_matrix(w.weight, w.in / 32 * w.bits) || !is_matrix(*w.scales, groups) ||
      !is_matrix(*w.biases, groups) || !is_floating(*w.scales) || !is_floating(*w.biases)) {
    throw std::invalid_argument("[linear] parts of a quantised weight do not match");
  }
}

void check_input(const mx::array& x, const LinearWeight& w, const std::optional<mx::array>& bias) {
  require_float32("linear", {x});
  if (x.ndim() == 0 || x.shape(-1) != w.in) {
    throw std::invalid_argument("[linear] input does not match the weight");
  }
  if (!bias) return;
  require_float32("linear", {*bias});
  if (bias->shape() != mx::Shape{static_cast<int>(w.out)}) {
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
  check_weight(w);
  check_input(x, w, bias);
  mx::Shape shape = x.shape();
  shape.back() = static_cast<int>(w.out);
  std::vector<mx::array> inputs = {x, w.weight};
  if (w.quantized()) {
    inputs.push_back(*w.scales);
    inputs.push_back(*w.biases);
  }
  if (bias) inputs.push_back(*bias);
  // The closures keep only the description; the arrays come back as inputs.
  const LinearWeight description{mx::array(0.0F), std::nullopt, std::nullopt, w.bits,
                                 w.group_size,    w.out,        w.in};
  const bool has_bias = bias.has_value();
  return cpu_op(
      "linear", shape, std::move(inputs),
      [description, has_bias](const auto& in, auto& out) {
        run_linear(in, description, has_bias, out);
      },
      [description, has_bias](const auto& in) {
        auto y = mx::matmul(in[0], mx::transpose(dense_matrix(in, description)));
        return std::vector{has_bias ? y + in.back() : y};
      });
}

}  // namespace mere
