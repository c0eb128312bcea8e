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

// Frequencies 12 and 106 of 128 as the reference has them: torch.exp(-log(10000) * i / 128) gives
// 0.4216965138912201 and, one unit above the rounded value, 0.00048696...; at timestep 1 the sine
// of a small angle shows the second.
TEST(TimestepEmbedding, FrequenciesRoundAsInTheReference) {
  const std::array<float, 1> timesteps = {1.0F};
  const std::vector<float> e = to_floats(timestep_embedding(timesteps, 256));
  EXPECT_EQ(e[12], std::cos(0.4216965138912201F));
  EXPECT_NE(0.4216965138912201F, static_cast<float>(std::exp(-12.0 / 128.0 * std::log(10000.0))));
}

}  // namespace
}  // namespace mere
