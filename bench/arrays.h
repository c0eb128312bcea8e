// Inputs and parts of outputs.
#pragma once

#include <cstdint>
#include <mlx/mlx.h>
#include <vector>

namespace mere::bench {

using Floats = std::vector<float>;
using Indices = std::vector<int>;

// Evenly distributed in [low, high), the same for the same seed. UsageError when the shape has more
// than 2^28 elements.
mlx::core::array random_array(const mlx::core::Shape& shape, uint32_t seed, float low = -1,
                              float high = 1);
// Random 32-bit words.
mlx::core::array random_words(const mlx::core::Shape& shape, uint32_t seed);

// The values as float32, in row-major order.
Floats values_of(const mlx::core::array& a);

// All of 0..count-1 when they are at most `most`, else `most` of them, first and last included.
Indices some_of(int64_t count, int64_t most);

// The parts of `a` at `indices` of one axis.
mlx::core::array pick(const mlx::core::array& a, const Indices& indices, int axis);

// `a` [..., width] as a matrix [rows, width].
mlx::core::array as_rows(const mlx::core::array& a);

}  // namespace mere::bench
