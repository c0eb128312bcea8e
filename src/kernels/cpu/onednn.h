// The only user of oneDNN: matrix product and convolution. Builds with API 2.6 and 3.x.
#pragma once

#include <cstdint>

namespace mere::cpu {

// Instruction sets above AVX2 are not used from now on.
void onednn_cap_avx2();
// The same for those above AVX512-BF16: AMX.
void onednn_cap_avx512();

// Whether the processor multiplies bfloat16 faster than float32 (AVX512-BF16 or AMX).
bool has_bf16_gemm();

struct ConvShape {
  int64_t batch, in_height, in_width, in_channels;
  int64_t out_height, out_width, out_channels;
  int64_t kernel_height, kernel_width, stride;
  int64_t pad_top, pad_bottom, pad_left, pad_right;
  int64_t weight_strides[4];  // of the axes out, height, width, in; in elements
};

// src [B, H, W, Cin], dst [B, Ho, Wo, Cout] dense; weight float32 with the strides of `shape`;
// bias [Cout] or nullptr.
void conv2d(const ConvShape& shape, const float* src, const float* weight, const float* bias,
            float* dst);

// The same with src and weight in bfloat16; sums, bias and result stay float32. Needs
// has_bf16_gemm().
void conv2d_bf16(const ConvShape& shape, const uint16_t* src, const uint16_t* weight,
                 const float* bias, float* dst);

}  // namespace mere::cpu
