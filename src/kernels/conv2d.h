// 2-D convolution, channels last.
#pragma once

#include <mlx/mlx.h>
#include <optional>

namespace mere {

struct ConvPadding {
  int top = 0, bottom = 0, left = 0, right = 0;  // pixels of zeros
};

// x [B, H, W, Cin] float32; weight [Cout, kh, kw, Cin] float32, f16 or bf16 with any strides (a
// transposed view of a [Cout, Cin, kh, kw] tensor is taken as it is); bias [Cout] float32 or
// absent. Result [B, Ho, Wo, Cout] float32. std::invalid_argument on a shape or type mismatch.
mlx::core::array conv2d(const mlx::core::array& x, const mlx::core::array& weight,
                        const std::optional<mlx::core::array>& bias, int stride,
                        const ConvPadding& padding);

// Nearest-neighbour x2: [B, H, W, C] -> [B, 2 H, 2 W, C].
mlx::core::array upsample_nearest_2x(const mlx::core::array& x);

}  // namespace mere
