#include "kernels/activation.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int64_t kGrainFloats = 8192;  // least work worth a thread

// body(row) for every row of `rows`, in parallel.
template <class Body>
void for_each_row(const RowIndex& rows, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / std::max<int64_t>(1, rows.width()));
  cpu::parallel_for(rows.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

}  // namespace

mx::array silu(const mx::array& x) {
  return cpu_op(
      "silu", x.shape(), {x},
      [](const auto& in, auto& out) {
        const RowIndex rows(in[0]);
        for_each_row(rows, [&](int64_t row) {
          cpu::silu_row(in[0].template data<float>() + rows.offset(row), rows.width(),
                        out.template data<float>() + row * rows.width());
        });
      },
      [](const auto& in) { return std::vector{in[0] * mx::sigmoid(in[0])}; });
}

mx::array swiglu(const mx::array& x) {
  mx::Shape shape = x.shape();
  if (shape.empty() || shape.back() % 2 != 0) {
    throw std::invalid_argument("[swiglu] the last axis must be even");
  }
  shape.back() /= 2;
  return cpu_op(
      "swiglu", shape, {x},
      [](const auto& in, auto& out) {
        const RowIndex rows(in[0]);
        const int64_t half = rows.width() / 2;
        for_each_row(rows, [&](int64_t row) {
          const float* gate = in[0].template data<float>() + rows.offset(row);
          cpu::swiglu_row(gate, gate + half, half, out.template data<float>() + row * half);
        });
      },
      [](const auto& in) {
        const auto halves = mx::split(in[0], 2, -1);
        return std::vector{halves[0] * mx::sigmoid(halves[0]) * halves[1]};
      });
}

mx::array gated_residual(const mx::array& residual, const mx::array& gate, const mx::array& x) {
  if (x.ndim() != 3 || residual.shape() != x.shape() || gate.ndim() != 3 || gate.shape(1) != 1 ||
      gate.shape(2) != x.shape(2)) {
    throw std::invalid_argument("[gated_residual] shapes do not match");
  }
  return cpu_op(
      "gated_residual", x.shape(), {residual, gate, x},
      [](const auto& in, auto& out) {
        const RowIndex residual_rows(in[0]);
        const RowIndex x_rows(in[2]);
        const int64_t tokens = in[2].shape(1);
        const int64_t gate_stride = in[1].shape(0) == 1 ? 0 : in[1].strides(0);
        for_each_row(x_rows, [&](int64_t row) {
          cpu::gated_residual_row(in[0].template data<float>() + residual_rows.offset(row),
                                  in[1].template data<float>() + row / tokens * gate_stride,
                                  in[2].template data<float>() + x_rows.offset(row), x_rows.width(),
                                  out.template data<float>() + row * x_rows.width());
        });
      },
      [](const auto& in) { return std::vector{in[0] + in[1] * in[2]}; });
}

}  // namespace mere
