#include "kernels/top_k.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/top_k.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int64_t kGrainFloats = 32768;  // least work worth a thread

void run_top_k(const mx::array& x, int64_t k, mx::array& out) {
  const Rows<float> rows(x);
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / rows.width());
  auto* to = reinterpret_cast<int32_t*>(out.data<float>());
  cpu::parallel_for(rows.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      cpu::top_k_row(rows.row(row), rows.width(), k, to + row * k);
    }
  });
}

// Integers that sort as the values do: the bits of a float as a signed number, with the order of
// the negative ones turned round.
mx::array sort_keys(const mx::array& x) {
  const auto bits = mx::view(x + mx::array(0.0F), mx::int32);  // -0 becomes 0
  const auto magnitude = mx::bitwise_and(bits, mx::array(0x7fffffff));
  const auto keys = mx::where(bits < mx::array(0), mx::negative(magnitude), magnitude);
  return mx::where(mx::isnan(x), mx::array(std::numeric_limits<int32_t>::max()), keys);
}

// [..., k] int32. An op of ours has float32 outputs, so the indices travel as bits of floats.
mx::array top_k_indices(const char* name, const mx::array& x, int k) {
  require_float32(name, {x});
  if (x.ndim() == 0 || k < 1 || k > x.shape(-1)) {
    throw std::invalid_argument("[" + std::string(name) + "] the last axis is too short");
  }
  mx::Shape shape = x.shape();
  shape.back() = k;
  const auto bits = cpu_op(
      name, shape, {mx::stop_gradient(x)},
      [k](const auto& in, auto& out) { run_top_k(in[0], k, out); },
      [k](const auto& in) {
        const auto order = mx::argsort(mx::negative(sort_keys(in[0])), -1);
        mx::Shape stop = order.shape();
        stop.back() = k;
        const auto best = mx::slice(order, mx::Shape(order.ndim(), 0), stop);
        return std::vector{mx::view(mx::astype(best, mx::int32), mx::float32)};
      });
  return mx::view(bits, mx::int32);
}

}  // namespace

TopK top_k(const mx::array& x, int k) {
  const auto indices = top_k_indices("top_k", x, k);
  return {mx::take_along_axis(x, indices, -1), indices};
}

mx::array argmax_rows(const mx::array& x) {
  return mx::squeeze(top_k_indices("argmax_rows", x, 1), -1);
}

}  // namespace mere
