// 2-D convolution, channels last.
//
//   // second half of a residual block: conv(silu(group_norm(h))) + x
//   conv2d(h, weight, bias, 1, {1, 1, 1, 1}, {.norm = ConvNorm{gain, offset, 32, 1e-6F}, .residual
//   = x})
//
// 3x3 with stride 1 goes through Winograd's transform (cpu/winograd.h), 1x1 through the matrix
// product, the rest through oneDNN.
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

struct ConvNorm {
  mlx::core::array weight, bias;  // [Cin] float32
  int groups;
  float eps;
  // [B, groups, 2] float32: mean and variance to normalise with instead of those of x
  // (group_moments in norm.h).
  std::optional<mlx::core::array> moments = std::nullopt;
};

// What happens before and after in the same pass. In a 3x3 convolution with stride 1 neither the
// normalised nor the enlarged input exists in memory.
struct ConvFusion {
  std::optional<ConvNorm> norm = std::nullopt;  // the convolution reads silu(group_norm(x))
  bool upsample = false;                        // and then every pixel as 2x2
  std::optional<mlx::core::array> residual = std::nullopt;  // added; shape of the result, float32
};

// conv2d of x as changed by `fusion`; padding and result refer to the enlarged picture.
mlx::core::array conv2d(const mlx::core::array& x, const mlx::core::array& weight,
                        const std::optional<mlx::core::array>& bias, int stride,
                        const ConvPadding& padding, const ConvFusion& fusion);

// Nearest-neighbour x2: [B, H, W, C] -> [B, 2 H, 2 W, C].
mlx::core::array upsample_nearest_2x(const mlx::core::array& x);

}  // namespace mere
