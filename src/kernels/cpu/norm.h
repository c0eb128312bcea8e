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

// Pixels of a picture, `stride` from one row to the next.
struct PixelRows {
  int64_t rows, width, stride;
};

// Mean and variance, one after the other, of each group of channels / groups channels over the
// pixels of x. Parallel, and the same for any number of threads.
void group_moments(const float* x, const PixelRows& pixels, int64_t channels, int64_t groups,
                   double* moments);

// Group normalisation of one picture x of `pixels` pixels, then * weight + bias, as one factor and
// one offset per channel: scale[c] * x + shift[c]. `given` are moments as group_moments gives them,
// or nullptr: those of x are taken. NaN for a group whose variance overflows float32.
void group_norm_factors(const float* x, int64_t pixels, const float* given, int64_t channels,
                        int64_t groups, float eps, const float* weight, const float* bias,
                        float* scale, float* shift);

// out[r, c] = x[r, c] * scale[c] + shift[c], then SiLU when `silu`.
void scale_shift_rows(const float* x, const float* scale, const float* shift, bool silu,
                      int64_t rows, int64_t channels, float* out);

}  // namespace mere::cpu
