// Weights of every stored type.
#pragma once

#include <string>

#include "arrays.h"

#include "kernels/linear.h"

namespace mere::bench {

// f32, bf16 or f16.
mlx::core::Dtype floating_dtype(const std::string& name);

// Random [out, in] of a type of floating_dtype, or q1 to q8: bits, groups of 64. UsageError when
// `in` is not a multiple of these.
LinearWeight random_weight(const std::string& dtype, int out, int in, uint32_t seed);

double bytes_of(const LinearWeight& weight);

// Rows of a weight as float32, by the plain reference.
Floats weight_rows(const LinearWeight& weight, const Indices& rows);

// The largest relative L2 error of a product in what it may run in (kernels/precision.h).
double product_tolerance();

}  // namespace mere::bench
