#include "kernels/pixel_shuffle.h"

#include <tuple>

#include "arrays.h"

#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

// batch, packed height, packed width, channels, factor
class PixelShuffle : public testing::TestWithParam<std::tuple<int, int, int, int, int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, PixelShuffle,
                         testing::Values(std::tuple{1, 1, 1, 1, 1}, std::tuple{2, 3, 5, 7, 1},
                                         std::tuple{1, 1, 1, 3, 2}, std::tuple{2, 3, 5, 7, 2},
                                         std::tuple{1, 5, 3, 1, 3}, std::tuple{3, 2, 3, 5, 4},
                                         std::tuple{1, 33, 17, 32, 2}));

TEST_P(PixelShuffle, MatchesReferenceInEveryView) {
  const auto [batch, height, width, channels, factor] = GetParam();
  const mx::array x = random_array({batch, height * factor, width * factor, channels}, 480);
  const Floats packed =
      ref::pixel_unshuffle(values_of(x), batch, height * factor, width * factor, channels, factor);
  const mx::Shape packed_shape = {batch, height, width, channels * factor * factor};
  EXPECT_EQ(pixel_unshuffle(x, factor).shape(), packed_shape);
  for (const mx::array& view : {x, inside_wider(x), stored_swapped(x, 1, 3), every_other(x),
                                stored_swapped(x, 1, 2), stored_backwards(x, 1)}) {
    EXPECT_EQ(values_of(pixel_unshuffle(view, factor)), packed);
  }
  const mx::array y = to_array(packed, packed_shape);
  EXPECT_EQ(pixel_shuffle(y, factor).shape(), x.shape());
  for (const mx::array& view : {y, inside_wider(y), stored_swapped(y, 1, 3), every_other(y),
                                stored_swapped(y, 1, 2), stored_backwards(y, 1)}) {
    EXPECT_EQ(values_of(pixel_shuffle(view, factor)), values_of(x));
  }
}

TEST(PixelShuffle, OrderIsChannelThenRowThenColumn) {
  // The value at (y, x, c) says where it came from.
  Floats values;
  for (int y = 0; y < 2; ++y) {
    for (int x = 0; x < 2; ++x) {
      for (int c = 0; c < 3; ++c) values.push_back(static_cast<float>(100 * c + 10 * y + x));
    }
  }
  const mx::array packed = pixel_unshuffle(to_array(values, {1, 2, 2, 3}), 2);
  EXPECT_EQ(values_of(packed), (Floats{0, 1, 10, 11, 100, 101, 110, 111, 200, 201, 210, 211}));
}

TEST(PixelShuffle, KeepsNanAndInf) {
  const Floats x = {1, kNan, kInf, -kInf, -0.0F, 1e-45F, 2, 3};
  expect_close(pixel_shuffle(pixel_unshuffle(to_array(x, {1, 2, 2, 2}), 2), 2), x, 0, 0);
}

TEST(PixelShuffle, TakesEmptyInputs) {
  EXPECT_EQ(pixel_shuffle(mx::zeros({0, 2, 2, 8}), 2).shape(), (mx::Shape{0, 4, 4, 2}));
  const mx::array none = pixel_unshuffle(mx::zeros({1, 4, 0, 3}), 2);
  EXPECT_EQ(none.shape(), (mx::Shape{1, 2, 0, 12}));
  EXPECT_EQ(values_of(none).size(), 0U);
  EXPECT_EQ(values_of(pixel_shuffle(mx::zeros({1, 2, 2, 0}), 2)).size(), 0U);
}

TEST(PixelShuffle, GradientsMatchDifferences) {
  const auto shuffle = [](const Arrays& in) { return pixel_shuffle(in[0], 2); };
  const auto unshuffle = [](const Arrays& in) { return pixel_unshuffle(in[0], 2); };
  const Arrays packed = {random_array({1, 2, 1, 8}, 481)};
  const Arrays pixels = {random_array({2, 2, 4, 3}, 482)};
  expect_gradients(shuffle, packed, {0});
  expect_gradients(unshuffle, pixels, {0});
  expect_fallback_agrees(shuffle, packed, 0, 0);
  expect_fallback_agrees(unshuffle, pixels, 0, 0);
}

TEST(PixelShuffle, RefusesMismatches) {
  const mx::array x = mx::zeros({1, 4, 6, 8});
  for (const int factor : {-2, 0, 3, 4, 1 << 20}) {
    EXPECT_THROW(pixel_shuffle(x, factor), std::invalid_argument) << factor;
  }
  for (const int factor : {-1, 0, 3, 4}) {
    EXPECT_THROW(pixel_unshuffle(x, factor), std::invalid_argument) << factor;
  }
  EXPECT_THROW(pixel_unshuffle(mx::zeros({1, 0, 0, 8}), 1 << 20), std::invalid_argument);
  EXPECT_THROW(pixel_shuffle(mx::zeros({4, 6, 8}), 2), std::invalid_argument);
  EXPECT_THROW(pixel_unshuffle(mx::astype(x, mx::float16), 2), std::invalid_argument);
}

}  // namespace
}  // namespace mere::test
