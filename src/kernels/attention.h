// Scaled dot-product attention without a [queries, keys] matrix in memory (online softmax over
// tiles; Dao et al. 2022).
#pragma once

#include <mlx/mlx.h>
#include <optional>

namespace mere {

struct AttentionMask {
  bool causal = false;  // query i sees keys 0..i (queries and keys of equal length)
  // [batch] integers: keys at and after this index are padding and not seen. A query that would
  // see nothing gives zeros.
  std::optional<mlx::core::array> valid_keys;
};

// q [B, H, Lq, D], k and v [B, Hkv, Lk, D] float32, H a multiple of Hkv (grouped queries).
// Transposed views are taken as they are; a last axis that is not dense is copied. scale > 0.
// Result [B, H, Lq, D] float32, stored as [B, Lq, H, D] so that merging heads is free.
// std::invalid_argument on a shape or type mismatch.
mlx::core::array attention(const mlx::core::array& q, const mlx::core::array& k,
                           const mlx::core::array& v, float scale, const AttentionMask& mask = {});

}  // namespace mere
