// Selection of the greatest values of one row.
#pragma once

#include <cstdint>

namespace mere::cpu {

// Indices of the k first values in the order of kernels/top_k.h. 1 <= k <= width.
void top_k_row(const float* x, int64_t width, int64_t k, int32_t* indices);

}  // namespace mere::cpu
