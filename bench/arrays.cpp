#include "arrays.h"

#include <algorithm>

#include "core/error.h"

namespace mere::bench {
namespace {

namespace mx = mlx::core;

constexpr int64_t kMostElements = int64_t{1} << 28;

size_t element_count(const mx::Shape& shape) {
  int64_t count = 1;
  for (const auto size : shape) {
    count *= size;
    if (count <= kMostElements) continue;
    throw UsageError{{"size_unsupported", "", "an array of these sizes is too large", ""}};
  }
  return static_cast<size_t>(count);
}

// A fast generator (Marsaglia's xorshift): the large inputs would take the standard ones seconds.
class RandomWords {
 public:
  explicit RandomWords(uint32_t seed) : state_(seed * 2654435761U + 1) {}

  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return state_;
  }

 private:
  uint32_t state_;
};

}  // namespace

mx::array random_array(const mx::Shape& shape, uint32_t seed, float low, float high) {
  RandomWords words(seed);
  Floats values(element_count(shape));
  for (float& v : values) v = low + (high - low) * static_cast<float>(words.next() >> 8) * 0x1p-24F;
  return mx::array(values.data(), shape, mx::float32);
}

mx::array random_words(const mx::Shape& shape, uint32_t seed) {
  RandomWords words(seed);
  std::vector<uint32_t> values(element_count(shape));
  for (uint32_t& v : values) v = words.next();
  return mx::array(values.data(), shape, mx::uint32);
}

Floats values_of(const mx::array& a) {
  mx::array dense = mx::contiguous(mx::astype(a, mx::float32));
  mx::eval(dense);
  return {dense.data<float>(), dense.data<float>() + dense.size()};
}

Indices some_of(int64_t count, int64_t most) {
  const int64_t chosen = std::min(count, most);
  Indices indices;
  for (int64_t i = 0; i < chosen; ++i) {
    indices.push_back(static_cast<int>(chosen < 2 ? 0 : i * (count - 1) / (chosen - 1)));
  }
  return indices;
}

mx::array pick(const mx::array& a, const Indices& indices, int axis) {
  const auto count = static_cast<int>(indices.size());
  return mx::take(a, mx::array(indices.data(), {count}, mx::int32), axis);
}

mx::array as_rows(const mx::array& a) { return mx::reshape(a, {-1, a.shape(-1)}); }

}  // namespace mere::bench
