// Decoding in tiles: the plan that keeps a limit, and that tiles give the whole picture.
#include <cmath>
#include <gtest/gtest.h>

#include "decoder.h"

#include "core/error.h"
#include "nn/strips.h"

namespace mere::test {
namespace {

class Steps : public SilentProgress {
 public:
  int64_t cancel_at = -1;
  std::vector<int64_t> steps;
  int64_t total = 0;

 protected:
  void on_report(Stage stage, int64_t step, int64_t of) override {
    EXPECT_EQ(stage, Stage::kDecoding);
    steps.push_back(step);
    total = of;
    if (step == cancel_at) cancel();
  }
};

Array random_array(const mx::Shape& shape, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  size_t count = 1;
  for (const auto dim : shape) count *= static_cast<size_t>(dim);
  std::vector<float> values(count);
  for (float& v : values) v = normal(rng);
  return array_from(values, shape);
}

// Calm at the left, busy and off centre at the bottom right: no strip has the picture's moments.
Array uneven_latent(int batch, int height, int width) {
  const Array noise = random_array({batch, height, width, 4}, 9);
  const Array down = mx::reshape(mx::arange(height, mx::float32), {1, height, 1, 1});
  const Array across = mx::reshape(mx::arange(width, mx::float32), {1, 1, width, 1});
  return noise * (down + across) * mx::array(0.3F) + down * mx::array(0.5F);
}

double largest_difference(const Array& a, const Array& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const auto x = to_floats(a);
  const auto y = to_floats(b);
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::fabs(double{x[i]} - y[i]));
  return most;
}

// A hundredth of a grey level, everywhere: at the borders of tiles too.
constexpr double kTolerance = 0.01 / 127.5;

void expect_whole_picture(const std::vector<int64_t>& channels, const Array& latent,
                          const std::vector<std::vector<int64_t>>& plans) {
  const auto model = RandomDecoder(channels).open();
  const AutoencoderKlFlux2& vae = *model;
  const Array whole = vae.decode(latent);
  for (const auto& rows : plans) {
    SCOPED_TRACE(testing::PrintToString(rows));
    Steps progress;
    EXPECT_LT(largest_difference(vae.decode(latent, {rows, 0}, progress), whole), kTolerance);
    for (size_t i = 0; i < progress.steps.size(); ++i) EXPECT_EQ(progress.steps[i], i);
    EXPECT_EQ(progress.steps.back(), progress.total);
  }
}

TEST(DecodeTiles, GiveTheWholePicture) {
  expect_whole_picture({8, 12, 16, 16}, uneven_latent(1, 6, 5),
                       {{}, {24}, {10, 16}, {6, 24, 14}, {12, 48}});
}

TEST(DecodeTiles, GiveTheWholePictureOfOddSizes) {
  expect_whole_picture({8, 8, 16}, uneven_latent(1, 7, 9), {{6}, {4, 10}});
  expect_whole_picture({4, 4}, uneven_latent(1, 1, 3), {{2}});
  expect_whole_picture({4, 4, 4}, uneven_latent(1, 1, 1), {{2}, {2, 2}});
}

TEST(DecodeTiles, GiveTheWholePicturesOfABatch) {
  expect_whole_picture({8, 16}, uneven_latent(2, 11, 4), {{6}, {20}});
}

TEST(DecodeTiles, MayBeLargerThanThePicture) {
  expect_whole_picture({4, 8, 8}, uneven_latent(1, 3, 4), {{100}, {100, 100}, {4, 100}});
}

TEST(DecodeTiles, OneLevelIsWhole) {
  expect_whole_picture({8}, uneven_latent(1, 5, 7), {{}});
  EXPECT_TRUE(plan_decode({5, 7, {8}, true}, 0).tile_rows.empty());
}

// Levels of other widths than the usual, the last wider than the one before.
TEST(DecodeTiles, LevelsMayWiden) {
  expect_whole_picture({24, 8, 4}, uneven_latent(1, 6, 6), {{6}, {6, 10}});
}

TEST(DecodeTiles, StopWhenCancelled) {
  const auto model = RandomDecoder({4, 8}).open();
  const AutoencoderKlFlux2& vae = *model;
  Steps progress;
  progress.cancel_at = 3;
  EXPECT_THROW(vae.decode(uneven_latent(1, 8, 4), {{4}, 0}, progress), Cancelled);
  EXPECT_EQ(progress.steps.size(), 4U);
}

constexpr int64_t kMega = 1'000'000;
const DecoderShape kFull = {128, 128, {512, 512, 256, 128}, true};  // 1024x1024

TEST(DecodePlan, IsWholeWhereThatFits) {
  const DecodePlan whole = plan_decode(kFull, int64_t{1} << 40);
  EXPECT_TRUE(whole.tile_rows.empty());
  EXPECT_NEAR(whole.bytes, 2147 * kMega, kMega);
  EXPECT_TRUE(plan_decode(kFull, whole.bytes).tile_rows.empty());
  EXPECT_FALSE(plan_decode(kFull, whole.bytes - 1).tile_rows.empty());
}

TEST(DecodePlan, KeepsTheLimitDownToTheLeast) {
  const int64_t least = plan_decode(kFull, 0).bytes;
  EXPECT_LT(least, 1000 * kMega);
  int64_t rows = 1024;
  for (int64_t limit = 2100 * kMega; limit >= least; limit -= 50 * kMega) {
    const DecodePlan plan = plan_decode(kFull, limit);
    ASSERT_FALSE(plan.tile_rows.empty());
    EXPECT_LE(plan.bytes, limit);
    EXPECT_LE(plan.tile_rows.back(), rows);
    rows = plan.tile_rows.back();
    for (const int64_t level : plan.tile_rows) {
      EXPECT_GT(level, 0);
      EXPECT_EQ(level % 2, 0);
    }
  }
  EXPECT_EQ(plan_decode(kFull, least).bytes, least);
  EXPECT_EQ(plan_decode(kFull, least - 1).bytes, least);
}

TEST(DecodePlan, OfTinyPicturesIsStillAPlan) {
  for (const int64_t side : {1, 2, 3}) {
    for (size_t levels = 1; levels <= 8; ++levels) {
      const DecoderShape shape{side, side, std::vector<int64_t>(levels, 4), true};
      for (const int64_t limit : {int64_t{0}, int64_t{2000}, int64_t{20000}}) {
        const DecodePlan plan = plan_decode(shape, limit);
        EXPECT_LT(plan.tile_rows.size(), levels);
        for (const int64_t rows : plan.tile_rows) EXPECT_GT(rows, 0);
      }
    }
  }
}

TEST(Strips, PoolTheMomentsOfThePicture) {
  const Array x = uneven_latent(2, 13, 6) + mx::array(20.0F);
  PooledMoments pooled;
  for (const Strip& strip : strips_of(13, 4)) {
    const int first = std::max(0, strip.begin - 1);
    pooled.add({rows_of(x, first, std::min(13, strip.end + 1)), first}, strip, 2);
  }
  const auto got = to_floats(pooled.value());
  const auto want = to_floats(group_moments(x, 2, {0, 0, 13, 6}));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << i;
}

// Rows above a strip are read as they were before the strip above was written.
TEST(Strips, WriteOneStripLate) {
  StripPicture picture({1, 6, 2, 1});
  const auto strips = strips_of(6, 2);
  const auto fill = [](int rows, float value) { return mx::full({1, rows, 2, 1}, value); };
  for (const Strip& strip : strips) picture.write({fill(2, 1), strip.begin}, strip);
  picture.finish();
  for (const Strip& strip : strips) {
    const StripRows rows = picture.read(strip, 1);
    for (const float v : to_floats(rows.x)) EXPECT_EQ(v, 1);
    picture.write({rows.x + mx::array(1.0F), rows.first}, strip);
  }
  picture.finish();
  for (const float v : to_floats(picture.array())) EXPECT_EQ(v, 2);
}

}  // namespace
}  // namespace mere::test
