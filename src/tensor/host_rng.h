// The host noise generator: the float32 normal sequence of torch's CPU generator (mt19937), so that
// a seed gives the same picture as the public reference pipelines and on every device.
// Source: ATen CPUGeneratorImpl, DistributionTemplates.h (normal_fill for 16 values and more,
// Box-Muller pairs with a cached second value for fewer). Checked by tests/fixtures/rng.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace mere {

class HostRng {
 public:
  // 64-bit seeds are accepted; like the reference, only the low 32 bits seed the twister. 0 is a
  // seed like any other.
  explicit HostRng(uint64_t seed);

  // The next `count` standard normal values, as one randn call of that many elements gives them.
  std::vector<float> normal(int64_t count);

 private:
  uint32_t next_uint32();
  std::array<uint32_t, 624> state_{};
  int position_ = 624;
  std::optional<float> cached_normal_;
};

}  // namespace mere
