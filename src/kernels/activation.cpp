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

// body(row) for every row, in parallel.
template <class Body>
void for_each_row(int64_t rows, int64_t width, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / std::max<int64_t>(1, width));
  cpu::parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

}  // namespace

mx::array silu(const mx::array& x) {
  require_float32("silu", {x});
  return cpu_op(
      "silu", x.shape(), {x},
      [](const auto& in, auto& out) {
        const Rows<float> x_rows(in[0]);
        const int64_t width = x_rows.width();
        float* to = out.template data<float>();
        for_each_row(x_rows.count(), width,
                     [&](int64_t row) { cpu::silu_row(x_rows.row(row), width, to + row * width); });
      },
      [](const auto& in) { return std::vector{in[0] * mx::sigmoid(in[0])}; });
}

mx::array swiglu(const mx::array& x) {
  require_float32("swiglu", {x});
  mx::Shape shape = x.shape();
  if (shape.empty() || shape.back() % 2 != 0) {
    throw std::invalid_argument("[swiglu] the last axis must be even");
  }
  shape.back() /= 2;
  return cpu_op(
      "swiglu", shape, {x},
      [](const auto& in, auto& out) {
        const Rows<float> x_rows(in[0]);
        const int64_t half = x_rows.width() / 2;
        float* to = out.template data<float>();
        for_each_row(x_rows.count(), half, [&](int64_t row) {
          const float* gate = x_rows.row(row);
          cpu::swiglu_row(gate, gate + half, half, to + row * half);
        });
      },
      [](const auto& in) {
        const auto halves = mx::split(in[0], 2, -1);
        return std::vector{halves[0] * mx::sigmoid(halves[0]) * halves[1]};
      });
}

mx::array gated_residual(const mx::array& residual, const mx::array& gate, const mx::array& x) {
  require_float32("gated_residual", {residual, gate, x});
  if (x.ndim() != 3 || residual.shape() != x.shape() || gate.ndim() != 3 || gate.shape(1) != 1 ||
      gate.shape(2) != x.shape(2) || (gate.shape(0) != 1 && gate.shape(0) != x.shape(0))) {
    throw std::invalid_argument("[gated_residual] shapes do not match");
  }
  return cpu_op(
      "gated_residual", x.shape(), {residual, gate, x},
      [](const auto& in, auto& out) {
        const Rows<float> residual_rows(in[0]);
        const Rows<float> gate_rows(in[1]);
        const Rows<float> x_rows(in[2]);
        const int64_t width = x_rows.width();
        const int64_t rows_per_gate = x_rows.count() / gate_rows.count();
        float* to = out.template data<float>();
        for_each_row(x_rows.count(), width, [&](int64_t row) {
          cpu::gated_residual_row(residual_rows.row(row), gate_rows.row(row / rows_per_gate),
                                  x_rows.row(row), width, to + row * width);
        });
      },
      [](const auto& in) { return std::vector{in[0] + in[1] * in[2]}; });
}

}  // namespace mere
