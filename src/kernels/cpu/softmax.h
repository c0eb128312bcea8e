// Softmax of one row. All pointers float32.
#pragma once

#include <cstdint>

namespace mere::cpu {

// out[i] = e^(x[i] - max) / sum; zeros when every x is -Inf, NaN when one is NaN or +Inf.
void softmax_row(const float* x, int64_t width, float* out);

}  // namespace mere::cpu
