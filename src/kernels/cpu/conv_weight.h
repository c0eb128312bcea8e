// The weight of a convolution as oneDNN takes it.
#pragma once

#include <cstdint>
#include <mlx/mlx.h>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/rows.h"

namespace mere {

// A float32, f16 or bf16 weight [out, spatial axes..., in] as float32 with the strides of its axes.
class ConvWeight {
 public:
  explicit ConvWeight(const mlx::core::array& a) : strides_(a.ndim()) {
    // A permuted view covers its buffer without gaps: it is widened in the order of memory and
    // keeps its strides. Other views are copied.
    const bool permuted = a.flags().contiguous && a.data_size() == a.size();
    int64_t dense_stride = 1;
    for (int axis = static_cast<int>(a.ndim()) - 1; axis >= 0; dense_stride *= a.shape(axis--)) {
      strides_[axis] = permuted ? a.strides(axis) : dense_stride;
      // The stride of an axis of size 1 means nothing, but oneDNN refuses one that looks like
      // overlap.
      if (a.shape(axis) == 1) strides_[axis] = static_cast<int64_t>(a.size());
    }
    if (a.dtype() == mlx::core::float32) {
      if (!permuted) wide_ = dense_copy<float>(a);
      data_ = permuted ? a.data<float>() : wide_.data();
      return;
    }
    std::vector<uint16_t> copy;
    if (!permuted) copy = dense_copy<uint16_t>(a);
    wide_.resize(a.size());
    const auto widen = a.dtype() == mlx::core::bfloat16 ? &cpu::bf16_to_f32 : &cpu::f16_to_f32;
    widen(permuted ? a.data<uint16_t>() : copy.data(), wide_.data(), wide_.size());
    data_ = wide_.data();
  }

  const float* data() const { return data_; }
  int64_t stride(int axis) const { return strides_[axis]; }

 private:
  std::vector<float> wide_;
  const float* data_ = nullptr;
  std::vector<int64_t> strides_;
};

}  // namespace mere
