// One of our CPU kernels as a node of the MLX graph.
//
//   return cpu_op("silu", x.shape(), {x}, run, fallback);
//
// `run` computes the output from evaluated inputs on the CPU stream's thread. `fallback` composes
// the same value from MLX operations: it gives gradients, and is what runs on a GPU until the op has
// a kernel there.
#pragma once

#include <mlx/mlx.h>

#include <functional>
#include <vector>

namespace mere {

using CpuRun = std::function<void(const std::vector<mlx::core::array>& inputs,
                                  mlx::core::array& output)>;
using Fallback =
    std::function<std::vector<mlx::core::array>(const std::vector<mlx::core::array>& inputs)>;

// Output is float32, dense, of `shape`. `name` must be a literal.
mlx::core::array cpu_op(const char* name, const mlx::core::Shape& shape,
                        std::vector<mlx::core::array> inputs, CpuRun run, Fallback fallback);

}  // namespace mere
