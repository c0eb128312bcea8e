// Activations, float32 in and out. std::invalid_argument on a shape or type mismatch.
#pragma once

#include <mlx/mlx.h>

namespace mere {

// x / (1 + e^-x).
mlx::core::array silu(const mlx::core::array& x);

// silu(gate) * value for x [..., 2 C] = [gate | value]. Result [..., C].
mlx::core::array swiglu(const mlx::core::array& x);

enum class Gelu {
  kErf,   // x Phi(x), Phi the normal distribution: torch's default
  kTanh,  // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2: "gelu_pytorch_tanh", "gelu_new"
};

mlx::core::array gelu(const mlx::core::array& x, Gelu form);

enum class GateHalf { kFirst, kSecond };

// gelu(gate) * value for x [..., 2 C], read in place. Result [..., C]. The published layouts
// differ: diffusers' GEGLU keeps the gate in the second half, where swiglu has it in the first.
mlx::core::array geglu(const mlx::core::array& x, Gelu form, GateHalf gate);

// std::invalid_argument unless residual [B, L, C] and gate [B, 1, C] or [1, 1, C] are float32 and
// fit x of `shape`.
void require_gate(const char* name, const mlx::core::array& residual, const mlx::core::array& gate,
                  const mlx::core::Shape& shape);

// residual + gate * x. x and residual [B, L, C], gate [B, 1, C] or [1, 1, C].
mlx::core::array gated_residual(const mlx::core::array& residual, const mlx::core::array& gate,
                                const mlx::core::array& x);

}  // namespace mere
