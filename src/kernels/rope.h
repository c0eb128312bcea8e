// Rotary position embedding over given cos and sin tables.
#pragma once

#include <mlx/mlx.h>

namespace mere {

enum class RopePairs {
  kAdjacent,  // (x[2i], x[2i+1]): FLUX
  kHalves,    // (x[i], x[i + D/2]): Qwen, Llama
};

// x [B, H, L, D] float32 with any strides, cos and sin [L, D/2] float32, one angle per pair.
// out = (a cos - b sin, b cos + a sin). Result stored as [B, L, H, D].
// std::invalid_argument on a shape or type mismatch.
mlx::core::array rope(const mlx::core::array& x, const mlx::core::array& cos,
                      const mlx::core::array& sin, RopePairs pairs);

}  // namespace mere
