// Normalisations, float32 in and out. std::invalid_argument on a shape or type mismatch.
//
// A row or group whose squares overflow float32 gives NaN: dividing by the overflow would turn a
// broken value into zeros that nothing notices.
#pragma once

#include <mlx/mlx.h>
#include <optional>

namespace mere {

// x / sqrt(mean(x^2) + eps) * weight over the last axis. weight [last axis].
mlx::core::array rms_norm(const mlx::core::array& x, const mlx::core::array& weight, float eps);

// (x - mean) / sqrt(var + eps) over the last axis, then * (1 + scale) + shift.
// x [B, L, C]; scale and shift [B, 1, C] or [1, 1, C] (one per batch row).
mlx::core::array layer_norm_modulated(const mlx::core::array& x, const mlx::core::array& scale,
                                      const mlx::core::array& shift, float eps);

// Group normalisation of x [B, H, W, C] over (H, W, C / groups), then * weight + bias (each [C]),
// then SiLU when `silu`. C must be a multiple of `groups`. With `moments` [B, groups, 2] mean and
// variance are these (group_moments): those of a whole picture, say, when x is a part of it.
mlx::core::array group_norm(const mlx::core::array& x, const mlx::core::array& weight,
                            const mlx::core::array& bias, int groups, float eps, bool silu,
                            const std::optional<mlx::core::array>& moments = std::nullopt);

// Pixels of a picture: rows [top, top + height), columns [left, left + width).
struct PixelRect {
  int top = 0, left = 0, height = 0, width = 0;
};

// Mean and variance of x [B, H, W, C] over the pixels of `rect` and C / groups channels: [B,
// groups, 2].
mlx::core::array group_moments(const mlx::core::array& x, int groups, const PixelRect& rect);

}  // namespace mere
