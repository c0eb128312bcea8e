// Affine quantisation of one row.
#pragma once

#include <cstdint>

namespace mere::cpu {

// The inverse of affine_to_f32 (cpu/stored.h): `columns` values to packed codes and one scale and
// bias per group, NaN for a group that holds a NaN or Inf. group_size <= 128.
void f32_to_affine(const float* x, int bits, int64_t group_size, int64_t columns, uint32_t* codes,
                   float* scales, float* biases);

}  // namespace mere::cpu
