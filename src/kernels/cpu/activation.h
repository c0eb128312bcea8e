// Elementwise kernels over rows. All pointers float32.
#pragma once

#include <cstdint>

namespace mere::cpu {

void silu_row(const float* x, int64_t width, float* out);

// out[i] = silu(gate[i]) * value[i]
void swiglu_row(const float* gate, const float* value, int64_t width, float* out);

void gelu_erf_row(const float* x, int64_t width, float* out);
void gelu_tanh_row(const float* x, int64_t width, float* out);

// out[i] = gelu(gate[i]) * value[i]
void geglu_erf_row(const float* gate, const float* value, int64_t width, float* out);
void geglu_tanh_row(const float* gate, const float* value, int64_t width, float* out);

// out[i] = residual[i] + gate[i] * x[i]
void gated_residual_row(const float* residual, const float* gate, const float* x, int64_t width,
                        float* out);

// y[i] += bias[i]
void add_row(const float* bias, int64_t width, float* y);

}  // namespace mere::cpu
