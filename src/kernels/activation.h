// Activations, float32 in and out. std::invalid_argument on a shape or type mismatch.
#pragma once

#include <mlx/mlx.h>

namespace mere {

// x / (1 + e^-x).
mlx::core::array silu(const mlx::core::array& x);

// silu(gate) * value for x [..., 2 C] = [gate | value]. Result [..., C].
mlx::core::array swiglu(const mlx::core::array& x);

// residual + gate * x. x and residual [B, L, C], gate [B, 1, C] or [1, 1, C].
mlx::core::array gated_residual(const mlx::core::array& residual, const mlx::core::array& gate,
                                const mlx::core::array& x);

}  // namespace mere
