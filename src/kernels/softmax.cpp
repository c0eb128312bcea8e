#include "kernels/softmax.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int64_t kGrainFloats = 8192;  // least work worth a thread

void run_softmax(const mx::array& x, mx::array& out) {
  const Rows<float> rows(x);
  const int64_t width = rows.width();
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / width);
  float* to = out.data<float>();
  cpu::parallel_for(rows.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      cpu::softmax_row(rows.row(row), width, to + row * width);
    }
  });
}

// A hidden row is replaced before the softmax: its NaN would reach the gradient through `where`.
mx::array softmax_fallback(const mx::array& x) {
  const auto hidden =
      mx::all(x == mx::array(-std::numeric_limits<float>::infinity()), -1, /*keepdims=*/true);
  const auto zero = mx::array(0.0F);
  return mx::where(hidden, zero, mx::softmax(mx::where(hidden, zero, x), -1));
}

}  // namespace

mx::array softmax_rows(const mx::array& x) {
  require_float32("softmax_rows", {x});
  if (x.ndim() == 0) throw std::invalid_argument("[softmax_rows] needs an axis");
  return cpu_op(
      "softmax_rows", x.shape(), {x}, [](const auto& in, auto& out) { run_softmax(in[0], out); },
      [](const auto& in) { return std::vector{softmax_fallback(in[0])}; });
}

}  // namespace mere
