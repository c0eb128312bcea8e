// Rotation kernels over one row of D values with D/2 angles.
#pragma once

#include <cstdint>

namespace mere::cpu {

// Pairs (x[2i], x[2i+1]).
void rope_adjacent_row(const float* x, const float* cos, const float* sin, int64_t pairs,
                       float* out);
// Pairs (x[i], x[i + pairs]).
void rope_halves_row(const float* x, const float* cos, const float* sin, int64_t pairs, float* out);

}  // namespace mere::cpu
