// Blocks of pixels to channels and back, channels last.
//
// Packed channel c * factor^2 + dy * factor + dx is channel c of the pixel (dy, dx) of its block:
// channel slowest, then row, then column. That is torch's pixel_shuffle, and the packing of FLUX
// latents (AutoencoderKlFlux2::patchify). Models that keep the pixel slowest, (dy, dx, c), need
// another order.
#pragma once

#include <mlx/mlx.h>

namespace mere {

// x [B, H, W, C factor^2] float32 with any strides -> [B, H factor, W factor, C].
// std::invalid_argument on a shape or type mismatch.
mlx::core::array pixel_shuffle(const mlx::core::array& x, int factor);

// The inverse: x [B, H, W, C], H and W multiples of factor -> [B, H / factor, W / factor,
// C factor^2].
mlx::core::array pixel_unshuffle(const mlx::core::array& x, int factor);

}  // namespace mere
