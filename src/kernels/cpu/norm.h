// Normalisation kernels over rows. All pointers float32.
#pragma once

#include <cstdint>

namespace mere::cpu {

// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]
void rms_norm_row(const float* x, const float* weight, float eps, int64_t width, float* out);

// out[i] = (x[i] - mean) / sqrt(var + eps) * (1 + scale[i]) + shift[i]
void layer_norm_row(const float* x, const float* scale, const float* shift, float eps,
                    int64_t width, float* out);

// Sum and sum of squares per channel of `rows` rows of `channels` values, added to sums[2 *
// channels] as double: [sum..., square sum...].
void channel_sums(const float* x, int64_t rows, int64_t channels, double* sums);

// Group normalisation of x [pixels, channels] over all pixels and channels / groups, then * weight
// + bias, as one factor and one offset per channel: scale[c] * x + shift[c]. NaN for a group whose
// variance overflows float32. Parallel, and the same for any number of threads.
void group_norm_factors(const float* x, int64_t pixels, int64_t channels, int64_t groups, float eps,
                        const float* weight, const float* bias, float* scale, float* shift);

// out[r, c] = x[r, c] * scale[c] + shift[c], then SiLU when `silu`.
void scale_shift_rows(const float* x, const float* scale, const float* shift, bool silu,
                      int64_t rows, int64_t channels, float* out);

}  // namespace mere::cpu
