// Conversions between stored types and float32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mere::cpu {

void bf16_to_f32(const uint16_t* in, float* out, size_t count);
void f16_to_f32(const uint16_t* in, float* out, size_t count);
// Rounds to nearest, ties to even; a NaN stays one.
void f32_to_bf16(const float* in, uint16_t* out, size_t count);

// One row of an MLX affine matrix: `columns` codes of `bits` bits, packed little-endian from the
// low bit up, to code * scale + bias with one scale and bias per `group_size` columns.
void affine_to_f32(const uint32_t* codes, int bits, const float* scales, const float* biases,
                   int64_t group_size, int64_t columns, float* out);

}  // namespace mere::cpu
