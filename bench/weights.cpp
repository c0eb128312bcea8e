#include "weights.h"

#include <stdexcept>

#include "core/error.h"
#include "kernels/precision.h"
#include "kernels/ref/reference.h"

namespace mere::bench {
namespace {

namespace mx = mlx::core;

constexpr int kGroupSize = 64;

LinearWeight random_quantized(int bits, int out, int in, uint32_t seed) {
  if (in % kGroupSize != 0) {
    throw UsageError{
        {"size_unsupported", "", "quantised rows must be a multiple of 64 values long", ""}};
  }
  // Values in about [-1, 1] whatever the bits.
  const float step = 2.0F / static_cast<float>((1 << bits) - 1);
  const mx::Shape groups = {out, in / kGroupSize};
  mx::array words = random_words({out, in / 32 * bits}, seed);
  mx::array scales = mx::astype(random_array(groups, seed + 1, 0.5F * step, step), mx::bfloat16);
  mx::array biases = mx::astype(random_array(groups, seed + 2, -1.0F, -0.5F), mx::bfloat16);
  mx::eval(words, scales, biases);
  return {words, scales, biases, bits, kGroupSize, out, in};
}

}  // namespace

mx::Dtype floating_dtype(const std::string& name) {
  if (name == "bf16") return mx::bfloat16;
  if (name == "f16") return mx::float16;
  if (name == "f32") return mx::float32;
  throw std::logic_error("no floating type " + name);
}

LinearWeight random_weight(const std::string& dtype, int out, int in, uint32_t seed) {
  if (dtype.starts_with('q')) return random_quantized(dtype.at(1) - '0', out, in, seed);
  mx::array weight = mx::astype(random_array({out, in}, seed), floating_dtype(dtype));
  mx::eval(weight);
  return dense_weight(weight);
}

double bytes_of(const LinearWeight& w) {
  return static_cast<double>(w.weight.nbytes() + (w.scales ? w.scales->nbytes() : 0) +
                             (w.biases ? w.biases->nbytes() : 0));
}

Floats weight_rows(const LinearWeight& w, const Indices& rows) {
  const mx::array weight = pick(w.weight, rows, 0);
  if (!w.quantized()) return values_of(weight);
  mx::array words = mx::contiguous(weight);
  mx::eval(words);
  return ref::dequantize({words.data<uint32_t>(), words.data<uint32_t>() + words.size()},
                         values_of(pick(*w.scales, rows, 0)), values_of(pick(*w.biases, rows, 0)),
                         static_cast<int64_t>(rows.size()), w.in, w.bits, w.group_size);
}

double product_tolerance() {
  const std::string type = compute_type();
  if (type == "int16") return 2e-4;
  return type == "bfloat16" ? 8e-3 : 1e-5;
}

}  // namespace mere::bench
