// MLX affine quantisation of weight matrices: value = code * scale + bias, one scale and bias per
// group of columns. LinearWeight (kernels/linear.h) describes how the codes are packed.
//
//   const LinearWeight w = quantize(weight, 4, 64);   // for linear() and embedding()
//   const Array again = dequantize(w);                // float32 [out, in]
#pragma once

#include <mlx/mlx.h>

#include "kernels/linear.h"

namespace mere {

// weight [out, in] float32, f16 or bf16 with any strides; bits 1-6 or 8; group_size 32, 64 or 128,
// a divisor of `in`. Codes, scales and biases are those of mlx::core::quantize; scales and biases
// keep the type of the weight. A group that holds a NaN or Inf gets NaN for both, so that it does
// not pass for a number. No gradient. std::invalid_argument on anything else.
LinearWeight quantize(const mlx::core::array& weight, int bits, int group_size);

// [out, in] float32, a dense weight only widened. std::invalid_argument as require_weight.
mlx::core::array dequantize(const LinearWeight& weight);

}  // namespace mere
