// 3-D convolution of films and volumes, channels last.
//
//   // causal in time: frame t sees frames t-2 .. t
//   conv3d(x, weight, bias, {}, {.front = 2, .top = 1, .bottom = 1, .left = 1, .right = 1})
#pragma once

#include <mlx/mlx.h>
#include <optional>

namespace mere {

struct Conv3dStride {
  int depth = 1;
  int plane = 1;  // of height and width
};

struct Conv3dPadding {
  int front = 0, back = 0;                       // slices of zeros; time when the input is a film
  int top = 0, bottom = 0, left = 0, right = 0;  // pixels of zeros
};

// x [B, D, H, W, Cin] float32; weight [Cout, kd, kh, kw, Cin] float32, f16 or bf16 with any strides
// (a transposed view of a [Cout, Cin, kd, kh, kw] tensor is taken as it is); bias [Cout] float32 or
// absent. Result [B, Do, Ho, Wo, Cout] float32.
// Computed as the sum over kd of 2-D convolutions: as fast as oneDNN's own 3-D one.
// std::invalid_argument on a shape or type mismatch.
mlx::core::array conv3d(const mlx::core::array& x, const mlx::core::array& weight,
                        const std::optional<mlx::core::array>& bias, const Conv3dStride& stride,
                        const Conv3dPadding& padding);

}  // namespace mere
