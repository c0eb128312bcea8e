// The greatest values of the last axis, for sampling.
//
//   const TopK best = top_k(logits, 40);   // logits [B, vocabulary] -> two of [B, 40]
//
// Order: greater values first, equal values by their index, lowest first. A NaN counts as greater
// than every number, so that a broken row shows up in its first value. 0 and -0 are equal.
#pragma once

#include <mlx/mlx.h>

namespace mere {

struct TopK {
  mlx::core::array values;   // [..., k] float32
  mlx::core::array indices;  // [..., k] int32
};

// x [..., n] float32 with any strides, 1 <= k <= n. Values carry the gradient, indices none.
// std::invalid_argument on another k, a scalar or another type.
TopK top_k(const mlx::core::array& x, int k);

// Index of the first value in that order: x [..., n] float32, n > 0 -> [...] int32.
// Named so that calls do not find mlx::core::argmax as well.
mlx::core::array argmax_rows(const mlx::core::array& x);

}  // namespace mere
