#include "kernels/quantize.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/weight_rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int64_t kGrainFloats = 8192;  // least work worth a thread

int64_t grain_rows(int64_t width) { return std::max<int64_t>(1, kGrainFloats / width); }

// out: all codes, then all scales, then all biases.
void run_quantize(const mx::array& weight, int bits, int group_size, mx::array& out) {
  const FloatingRows rows(weight);
  const int64_t count = weight.shape(0);
  const int64_t width = rows.width();
  const int64_t words = width / 32 * bits;
  const int64_t groups = width / group_size;
  auto* const codes = reinterpret_cast<uint32_t*>(out.data<float>());
  float* const scales = out.data<float>() + count * words;
  float* const biases = scales + count * groups;
  cpu::parallel_for(count, grain_rows(width), [&](int64_t begin, int64_t end) {
    std::vector<float> wide(static_cast<size_t>(width));
    for (int64_t row = begin; row < end; ++row) {
      rows.widen(row, wide.data());
      cpu::f32_to_affine(wide.data(), bits, group_size, width, codes + row * words,
                         scales + row * groups, biases + row * groups);
    }
  });
}

mx::array quantize_fallback(const mx::array& weight, int bits, int group_size) {
  const auto parts = mx::quantize(mx::astype(weight, mx::float32), group_size, bits);
  return mx::concatenate(
      {mx::flatten(mx::view(parts[0], mx::float32)), mx::flatten(parts[1]), mx::flatten(parts[2])});
}

void run_dequantize(const std::vector<mx::array>& in, int bits, int group_size, mx::array& out) {
  const WeightRows rows(in.data(), bits, group_size);
  const int64_t width = out.shape(1);
  float* const to = out.data<float>();
  cpu::parallel_for(out.shape(0), grain_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) rows.widen(row, to + row * width);
  });
}

}  // namespace

LinearWeight quantize(const mx::array& weight, int bits, int group_size) {
  if (weight.ndim() != 2 || weight.size() == 0 || !is_floating(weight)) {
    throw std::invalid_argument("[quantize] needs a floating matrix [out, in]");
  }
  if (!known_affine_bits(bits) || !common_affine_group(group_size) ||
      weight.shape(1) % group_size != 0) {
    throw std::invalid_argument("[quantize] unknown quantisation");
  }
  const int64_t out = weight.shape(0);
  const int64_t in = weight.shape(1);
  const int64_t words = out * (in / 32 * bits);
  const int64_t groups = out * (in / group_size);
  if (words + 2 * groups > std::numeric_limits<int>::max()) {
    throw std::invalid_argument("[quantize] the matrix is too large");
  }
  // An op of ours has one float32 output, so the three results travel in one as bits of floats.
  const auto packed = cpu_op(
      "quantize", {static_cast<int>(words + 2 * groups)}, {mx::stop_gradient(weight)},
      [bits, group_size](const auto& in, auto& out) { run_quantize(in[0], bits, group_size, out); },
      [bits, group_size](const auto& in) {
        return std::vector{quantize_fallback(in[0], bits, group_size)};
      });
  const auto part = [&](int64_t first, int64_t count) {
    const auto flat =
        mx::slice(packed, {static_cast<int>(first)}, {static_cast<int>(first + count)});
    return mx::reshape(flat, {static_cast<int>(out), static_cast<int>(count / out)});
  };
  return {mx::view(part(0, words), mx::uint32),
          mx::astype(part(words, groups), weight.dtype()),
          mx::astype(part(words + groups, groups), weight.dtype()),
          bits,
          group_size,
          out,
          in};
}

mx::array dequantize(const LinearWeight& w) {
  require_weight("dequantize", w);
  if (!w.quantized()) return mx::astype(w.weight, mx::float32);
  const int bits = w.bits;
  const int group_size = w.group_size;
  return cpu_op(
      "dequantize", {static_cast<int>(w.out), static_cast<int>(w.in)}, weight_inputs(w),
      [bits, group_size](const auto& in, auto& out) { run_dequantize(in, bits, group_size, out); },
      [bits, group_size](const auto& in) {
        return std::vector{mx::dequantize(in[0], mx::astype(in[1], mx::float32),
                                          mx::astype(in[2], mx::float32), group_size, bits)};
      });
}

}  // namespace mere
