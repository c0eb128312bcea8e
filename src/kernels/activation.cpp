#include "kernels/activation.h"

#include <algorithm>
#include <numbers>
#include <stdexcept>
#include <string>

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

// The definition, in MLX operations.
mx::array compose_gelu(const mx::array& x, Gelu form) {
  const auto half = mx::array(0.5F);
  const auto one = mx::array(1.0F);
  if (form == Gelu::kErf) {
    return half * x * (one + mx::erf(x * mx::array(std::numbers::sqrt2_v<float> / 2)));
  }
  const auto cubic = x + mx::array(0.044715F) * mx::square(x) * x;
  return half * x * (one + mx::tanh(mx::array(0.797884561F) * cubic));  // sqrt(2 / pi)
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

mx::array gelu(const mx::array& x, Gelu form) {
  require_float32("gelu", {x});
  auto* const gelu_row = form == Gelu::kErf ? &cpu::gelu_erf_row : &cpu::gelu_tanh_row;
  return cpu_op(
      "gelu", x.shape(), {x},
      [gelu_row](const auto& in, auto& out) {
        const Rows<float> x_rows(in[0]);
        const int64_t width = x_rows.width();
        float* to = out.template data<float>();
        for_each_row(x_rows.count(), width,
                     [&](int64_t row) { gelu_row(x_rows.row(row), width, to + row * width); });
      },
      [form](const auto& in) { return std::vector{compose_gelu(in[0], form)}; });
}

mx::array geglu(const mx::array& x, Gelu form, GateHalf gate) {
  require_float32("geglu", {x});
  mx::Shape shape = x.shape();
  if (shape.empty() || shape.back() % 2 != 0) {
    throw std::invalid_argument("[geglu] the last axis must be even");
  }
  shape.back() /= 2;
  auto* const geglu_row = form == Gelu::kErf ? &cpu::geglu_erf_row : &cpu::geglu_tanh_row;
  const bool gate_first = gate == GateHalf::kFirst;
  return cpu_op(
      "geglu", shape, {x},
      [geglu_row, gate_first](const auto& in, auto& out) {
        const Rows<float> x_rows(in[0]);
        const int64_t half = x_rows.width() / 2;
        float* to = out.template data<float>();
        for_each_row(x_rows.count(), half, [&](int64_t row) {
          const float* first = x_rows.row(row);
          const float* second = first + half;
          geglu_row(gate_first ? first : second, gate_first ? second : first, half,
                    to + row * half);
        });
      },
      [form, gate_first](const auto& in) {
        const auto halves = mx::split(in[0], 2, -1);
        return std::vector{compose_gelu(halves[gate_first ? 0 : 1], form) *
                           halves[gate_first ? 1 : 0]};
      });
}

void require_gate(const char* name, const mx::array& residual, const mx::array& gate,
                  const mx::Shape& shape) {
  require_float32(name, {residual, gate});
  if (shape.size() != 3 || residual.shape() != shape || gate.ndim() != 3 || gate.shape(1) != 1 ||
      gate.shape(2) != shape[2] || (gate.shape(0) != 1 && gate.shape(0) != shape[0])) {
    throw std::invalid_argument("[" + std::string(name) + "] shapes do not match");
  }
}

mx::array gated_residual(const mx::array& residual, const mx::array& gate, const mx::array& x) {
  require_float32("gated_residual", {x});
  require_gate("gated_residual", residual, gate, x.shape());
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
