// One of our CPU kernels as a node of the MLX graph.
//
//   require_float32("silu", {x});
//   return cpu_op("silu", x.shape(), {x}, run, fallback);
//
// `run` computes the output from evaluated inputs on the CPU stream's thread. `fallback` composes
// the same value from MLX operations: it gives gradients, and is what runs on a GPU until the op
// has a kernel there.
//
// Shapes and types are known when the graph is built, so wrappers check them there. Strides are
// known only in `run`, which therefore takes any (cpu/rows.h). What `run` throws reaches the caller
// of eval as std::runtime_error; nothing may be thrown inside a parallel region.
#pragma once

#include <functional>
#include <initializer_list>
#include <mlx/mlx.h>
#include <vector>

namespace mere {

using CpuRun =
    std::function<void(const std::vector<mlx::core::array>& inputs, mlx::core::array& output)>;
using Fallback =
    std::function<std::vector<mlx::core::array>(const std::vector<mlx::core::array>& inputs)>;

// Output is float32, dense, of `shape`. `name` must be a literal. `run` is not called for an empty
// output.
mlx::core::array cpu_op(const char* name, const mlx::core::Shape& shape,
                        std::vector<mlx::core::array> inputs, CpuRun run, Fallback fallback);

// Whether the array holds float32, f16 or bf16 values.
bool is_floating(const mlx::core::array& a);

// std::invalid_argument unless every array is float32.
void require_float32(const char* name, std::initializer_list<mlx::core::array> arrays);

}  // namespace mere
