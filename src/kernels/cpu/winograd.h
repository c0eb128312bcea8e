// 3x3 convolution with stride 1 by Winograd's F(4x4, 3x3): 36 multiplications where the definition
// takes 144.
//
// Interpolation points are 0, +-5/8, +-3/2 and infinity. The usual 0, +-1, +-2 lose 2.4 times as
// many digits: with these the root mean square error stays within 1.5 times that of a plain float32
// sum, and all constants of the transforms of input and output are exact.
//
// A value that is not finite reaches every pixel of the 4x4 tiles it is read for.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"

namespace mere::cpu {

// What the convolution reads. Neither the normalised nor the enlarged picture exists in memory.
struct WinogradInput {
  const float* x;  // dense [B, H, W, Cin], or with `upsample` [B, H / 2, W / 2, Cin]
  bool upsample;   // each pixel stands for 2x2
  // With `scale`: silu(scale[b, c] * x + shift[b, c]), each [B, Cin]. Padding stays zero.
  const float* scale;
  const float* shift;
};

// The [3, 3, Cin] of an output channel lie dense in some order, at any address.
struct WinogradWeight {
  Stored type;
  const void* data;
  int64_t strides[4];  // of the axes out, height, width, in; in elements
};

// dst [B, Ho, Wo, Cout] = conv(input) + bias + residual; bias [Cout] and residual (like dst, which
// it may be) can be nullptr. Strides of the weight in `shape` are not used.
// Takes 4 bytes * 36 * Cin * Cout for the transformed weights while it runs.
void winograd_conv2d(const ConvShape& shape, const WinogradInput& input,
                     const WinogradWeight& weight, const float* bias, const float* residual,
                     float* dst);

}  // namespace mere::cpu
