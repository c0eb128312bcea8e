// The host noise generator: the float32 normal sequence of torch's CPU generator (mt19937), so that
// a seed gives the same picture as the public reference pipelines and on every device.
// Source: ATen CPUGeneratorImpl, DistributionTemplates.h (normal_fill for 16 values and more,
// Box-Muller pairs with a cached second value for fewer). Checked by tests/fixtures/rng.
//
//   HostRng rng(seed);
//   const std::vector<float> noise = rng.normal(128 * 8 * 8);
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

  // The next `count` standard normal values, as one randn call of that many elements gives them:
  // two calls are not the same as one of the sum. InternalError when `count` is negative.
  std::vector<float> normal(int64_t count);

 private:
  uint32_t next_uint32();
  double next_uniform53();
  float next_uniform24();
  double next_normal();
  void fill_16(float* out);  // normal values of the 16 uniform ones at `out`

  std::array<uint32_t, 624> state_{};
  int position_ = 624;
  std::optional<double> cached_normal_;  // second value of a Box-Muller pair, before rounding
};

}  // namespace mere
