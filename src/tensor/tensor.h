// The only door to MLX for models: the array type and the few conversions everybody needs.
#pragma once

#include <cstdint>
#include <mlx/mlx.h>
#include <span>
#include <vector>

namespace mere {

namespace mx = mlx::core;
using Array = mx::array;

// MLX settings this program relies on (no run-time compiler on CPU, a bounded buffer cache).
// Idempotent; models call it before their first array. UsageError when one of the engine's
// environment variables holds something that it may not.
void initialize_engine();

// A float32 array holding a copy of `values`. `values.size()` must equal the product of `shape`.
Array array_from(std::span<const float> values, const mx::Shape& shape);
Array array_from(std::span<const int32_t> values, const mx::Shape& shape);

// Evaluates `a` and copies it out as float32 / double, row-major.
std::vector<float> to_floats(const Array& a);
std::vector<double> to_doubles(const Array& a);

}  // namespace mere
