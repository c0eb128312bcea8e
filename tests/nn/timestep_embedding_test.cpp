#include "nn/timestep_embedding.h"

#include <array>
#include <cmath>
#include <gtest/gtest.h>

namespace mere {
namespace {

TEST(TimestepEmbedding, CosinesThenSines) {
  const std::array<float, 2> timesteps = {0.0F, 1000.0F};
  const std::vector<float> e = to_floats(timestep_embedding(timesteps, 8));
  ASSERT_EQ(e.size(), 16U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(e[i], 1.0F);
    EXPECT_EQ(e[4 + i], 0.0F);
    const double angle = 1000.0 * std::pow(10000.0, -i / 4.0);
    EXPECT_NEAR(e[8 + i], std::cos(angle), 1e-4);
    EXPECT_NEAR(e[12 + i], std::sin(angle), 1e-4);
  }
}

// Frequency 12 of 128 is 0.4216965138912201 in the reference, one unit above the correctly rounded
// value.
TEST(TimestepEmbedding, FrequenciesRoundAsInTheReference) {
  constexpr float kReference = 0.4216965138912201F;
  const std::array<float, 1> timesteps = {1.0F};
  const std::vector<float> e = to_floats(timestep_embedding(timesteps, 256));
  EXPECT_EQ(e[128 + 12], std::sin(kReference));
  EXPECT_NE(e[128 + 12], std::sin(std::nextafter(kReference, 0.0F)));
}

}  // namespace
}  // namespace mere
