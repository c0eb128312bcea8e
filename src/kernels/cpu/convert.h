// Conversions between stored types and float32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mere::cpu {

void bf16_to_f32(const uint16_t* in, float* out, size_t count);
void f16_to_f32(const uint16_t* in, float* out, size_t count);
// Rounds to nearest, ties to even; a NaN stays one.
void f32_to_bf16(const float* in, uint16_t* out, size_t count);

}  // namespace mere::cpu
