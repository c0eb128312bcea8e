// A stored weight matrix read as rows of float32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mlx/mlx.h>
#include <optional>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/stored.h"
#include "kernels/linear.h"

namespace mere {

// Rows of a float32, f16 or bf16 array, widened one at a time.
class FloatingRows {
 public:
  explicit FloatingRows(const mlx::core::array& a) : bf16_(a.dtype() == mlx::core::bfloat16) {
    if (a.dtype() == mlx::core::float32) {
      floats_.emplace(a);
    } else {
      halves_.emplace(a);
    }
  }

  int64_t width() const { return floats_ ? floats_->width() : halves_->width(); }

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

// The arrays of a weight as inputs of an op: the matrix, then scales and biases when quantised.
inline std::vector<mlx::core::array> weight_inputs(const LinearWeight& w) {
  std::vector<mlx::core::array> inputs = {w.weight};
  if (w.quantized()) inputs.insert(inputs.end(), {*w.scales, *w.biases});
  return inputs;
}

// Rows of a LinearWeight whose arrays are the inputs from `parts` on.
class WeightRows {
 public:
  WeightRows(const mlx::core::array* parts, int bits, int group_size)
      : bits_(bits), group_size_(group_size) {
    if (bits == 0) {
      dense_.emplace(parts[0]);
    } else {
      codes_.emplace(parts[0]);
      scales_.emplace(parts[1]);
      biases_.emplace(parts[2]);
    }
  }

  void widen(int64_t row, float* out) const {
    if (dense_) return dense_->widen(row, out);
    std::vector<float> groups(static_cast<size_t>(2 * scales_->width()));
    float* const biases = groups.data() + scales_->width();
    scales_->widen(row, groups.data());
    biases_->widen(row, biases);
    cpu::affine_to_f32(codes_->row(row), bits_, groups.data(), biases, group_size_,
                       scales_->width() * group_size_, out);
  }

 private:
  int bits_, group_size_;
  std::optional<FloatingRows> dense_, scales_, biases_;
  std::optional<Rows<uint32_t>> codes_;
};

}  // namespace mere
