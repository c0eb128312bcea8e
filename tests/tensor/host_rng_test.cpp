#include "tensor/host_rng.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

// Distance in representable floats; the two must have one sign (or be zero).
int64_t ulp_distance(float a, float b) {
  const auto ordered = [](float x) {
    int32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? -static_cast<int64_t>(bits & 0x7FFFFFFF) : static_cast<int64_t>(bits);
  };
  return std::abs(ordered(a) - ordered(b));
}

// Values of a row of 16 and more come from our own polynomials and must agree in every bit; the
// others use the C library's float64 log, sine and cosine, rounded.
int64_t max_ulp(int64_t count) { return count < 16 ? 1 : 0; }

TEST(HostRng, MatchesTorchRandn) {
  const Json file = parse_json_file(fs::path(MERE_FIXTURES) / "rng/torch_randn.json");
  int64_t compared = 0;
  for (const Json& c : file.at("cases")) {
    const auto seed = c.at("seed").get<uint64_t>();
    int64_t count = 1;
    for (const Json& side : c.at("shape")) count *= side.get<int64_t>();
    SCOPED_TRACE("seed " + std::to_string(seed) + ", count " + std::to_string(count));

    HostRng rng(seed);
    const std::vector<float> values = rng.normal(count);
    ASSERT_EQ(values.size(), static_cast<size_t>(count));
    for (size_t i = 0; i < c.at("indices").size(); ++i) {
      const float expected = c.at("values")[i].get<float>();
      const int64_t distance = ulp_distance(values[c.at("indices")[i].get<size_t>()], expected);
      EXPECT_LE(distance, max_ulp(count))
          << "index " << c.at("indices")[i] << ", expected " << expected;
      ++compared;
    }
    double sum = 0, sum_of_squares = 0;
    for (const float value : values) {
      sum += value;
      sum_of_squares += static_cast<double>(value) * value;
    }
    EXPECT_NEAR(sum, c.at("sum").get<double>(), 1e-7 * static_cast<double>(count));
    EXPECT_NEAR(sum_of_squares, c.at("sum_of_squares").get<double>(),
                1e-7 * static_cast<double>(count));
    const std::vector<float> next = rng.normal(4);
    for (size_t i = 0; i < 4; ++i) {
      const int64_t distance = ulp_distance(next[i], c.at("next4")[i].get<float>());
      EXPECT_LE(distance, 1) << "next4[" << i << "]";
      ++compared;
    }
  }
  EXPECT_GT(compared, 900);
}

TEST(HostRng, OnlyTheLow32SeedBitsCount) {
  EXPECT_EQ(HostRng(7).normal(40), HostRng((uint64_t{256} << 32) + 7).normal(40));
  EXPECT_NE(HostRng(7).normal(40), HostRng(8).normal(40));
}

TEST(HostRng, PrefixOfALongRowIsThatOfAShortOneInWholeBlocks) {
  const std::vector<float> long_row = HostRng(3).normal(64);
  const std::vector<float> short_row = HostRng(3).normal(32);
  EXPECT_TRUE(std::equal(short_row.begin(), short_row.end(), long_row.begin()));
}

TEST(HostRng, CachedValueSurvivesABlockCall) {
  HostRng plain(11);
  const std::vector<float> pair = plain.normal(2);
  HostRng mixed(11);
  EXPECT_EQ(mixed.normal(1)[0], pair[0]);
  mixed.normal(16);
  EXPECT_EQ(mixed.normal(1)[0], pair[1]);
}

TEST(HostRng, ZeroCountDrawsNothing) {
  HostRng rng(5);
  EXPECT_TRUE(rng.normal(0).empty());
  EXPECT_EQ(rng.normal(20), HostRng(5).normal(20));
  EXPECT_THROW(rng.normal(-1), InternalError);
}

// A uniform draw of 0 in the radius half is log(1) = 0, never log(0): every value is finite.
TEST(HostRng, AMillionValuesAreFiniteWithUnitVariance) {
  double sum = 0, sum_of_squares = 0;
  const std::vector<float> values = HostRng(1234).normal(1 << 20);
  for (const float value : values) {
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    sum_of_squares += static_cast<double>(value) * value;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 0.005);
  EXPECT_NEAR(sum_of_squares / count, 1, 0.01);
}

}  // namespace
}  // namespace mere
