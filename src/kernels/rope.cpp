#include "kernels/rope.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int64_t kGrainFloats = 8192;  // least work worth a thread

// x [B, L, H, D] -> out of the same shape, dense.
void run_rope(const std::vector<mx::array>& in, RopePairs pairs, mx::array& out) {
  const Rows<float> rows(in[0]);
  const DenseData<float> cos(in[1]);
  const DenseData<float> sin(in[2]);
  const int64_t tokens = in[0].shape(1);
  const int64_t heads = in[0].shape(2);
  const int64_t width = rows.width();
  auto* const rotate =
      pairs == RopePairs::kAdjacent ? &cpu::rope_adjacent_row : &cpu::rope_halves_row;
  float* to = out.data<float>();
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / width);
  cpu::parallel_for(rows.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t angle = row / heads % tokens * (width / 2);
      rotate(rows.row(row), cos.data() + angle, sin.data() + angle, width / 2, to + row * width);
    }
  });
}

// The same composed from MLX operations, for gradients and GPUs.
mx::array rope_fallback(const std::vector<mx::array>& in, RopePairs pairs) {
  const int half = in[0].shape(3) / 2;
  const auto cos = mx::reshape(in[1], {1, in[0].shape(1), 1, half});
  const auto sin = mx::reshape(in[2], {1, in[0].shape(1), 1, half});
  mx::Shape split = in[0].shape();
  split.back() = pairs == RopePairs::kAdjacent ? half : 2;
  split.push_back(pairs == RopePairs::kAdjacent ? 2 : half);
  const int pair_axis = pairs == RopePairs::kAdjacent ? 4 : 3;
  const auto parts = mx::split(mx::reshape(in[0], split), 2, pair_axis);
  const auto a = mx::squeeze(parts[0], pair_axis);
  const auto b = mx::squeeze(parts[1], pair_axis);
  return mx::reshape(mx::stack({a * cos - b * sin, b * cos + a * sin}, pair_axis), in[0].shape());
}

}  // namespace

mx::array rope(const mx::array& x, const mx::array& cos, const mx::array& sin, RopePairs pairs) {
  require_float32("rope", {x, cos, sin});
  if (x.ndim() != 4 || x.shape(3) % 2 != 0 ||
      cos.shape() != mx::Shape{x.shape(2), x.shape(3) / 2} || sin.shape() != cos.shape()) {
    throw std::invalid_argument("[rope] shapes do not match");
  }
  const auto by_token = mx::transpose(x, {0, 2, 1, 3});
  const auto rotated = cpu_op(
      "rope", by_token.shape(), {by_token, cos, sin},
      [pairs](const auto& in, auto& out) { run_rope(in, pairs, out); },
      [pairs](const auto& in) { return std::vector{rope_fallback(in, pairs)}; });
  return mx::transpose(rotated, {0, 2, 1, 3});
}

}  // namespace mere
