// Weight matrices of random codes, for the tests of quantised tables.
#pragma once

#include "arrays.h"

#include "kernels/linear.h"
#include "kernels/ref/reference.h"

namespace mere::test {

inline constexpr int kBitWidths[] = {1, 2, 3, 4, 5, 6, 8};
inline constexpr int kGroups[] = {32, 64, 128};

inline std::vector<uint32_t> words_of(const mx::array& a) {
  mx::array dense = mx::contiguous(a);
  mx::eval(dense);
  return {dense.data<uint32_t>(), dense.data<uint32_t>() + dense.size()};
}

inline LinearWeight random_quantized(int out, int in, int bits, int group_size, mx::Dtype type) {
  std::mt19937 random(113);
  std::vector<uint32_t> words(static_cast<size_t>(out * in / 32 * bits));
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  const mx::Shape groups = {out, in / group_size};
  return {mx::array(words.data(), {out, in / 32 * bits}, mx::uint32),
          mx::astype(random_array(groups, 114, 0.01F, 0.1F), type),
          mx::astype(random_array(groups, 115), type),
          bits,
          group_size,
          out,
          in};
}

inline Floats dequantized(const LinearWeight& w) {
  return ref::dequantize(words_of(w.weight), values_of(*w.scales), values_of(*w.biases), w.out,
                         w.in, w.bits, w.group_size);
}

}  // namespace mere::test
