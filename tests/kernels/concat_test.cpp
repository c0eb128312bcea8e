#include "kernels/concat.h"

#include "arrays.h"

namespace mere::test {
namespace {

TEST(Concat, MatchesTheEngineOnEveryAxis) {
  const mx::array a = random_array({2, 3, 5, 7}, 1);
  for (int axis = -4; axis < 4; ++axis) {
    mx::Shape shape = a.shape();
    shape[axis < 0 ? axis + 4 : axis] = 4;
    const mx::array b = random_array(shape, 2);
    const mx::array c = concat({a, b, a}, axis);
    const mx::array want = mx::concatenate({a, b, a}, axis);
    EXPECT_EQ(c.shape(), want.shape());
    EXPECT_EQ(values_of(c), values_of(want)) << axis;
  }
}

TEST(Concat, ReadsViewsInPlace) {
  const mx::array a = random_array({2, 6, 8}, 3);
  const mx::array b = random_array({2, 3, 8}, 4);
  const Floats want = values_of(mx::concatenate({a, b}, 1));
  EXPECT_EQ(values_of(concat({inside_wider(a), stored_swapped(b, 0, 1)}, 1)), want);
  EXPECT_EQ(values_of(concat({every_other(a), stored_swapped(b, 1, 2)}, 1)), want);
  EXPECT_EQ(values_of(concat({stored_backwards(a, 1), b}, 1)), want);
}

TEST(Concat, TakesEmptyParts) {
  const mx::array a = random_array({2, 3}, 5);
  EXPECT_EQ(values_of(concat({mx::zeros({2, 0}), a, mx::zeros({2, 0})}, 1)), values_of(a));
}

TEST(Concat, RefusesWhatDoesNotFit) {
  const mx::array a = random_array({2, 3}, 6);
  EXPECT_THROW(concat({}, 0), std::invalid_argument);
  EXPECT_THROW(concat({a}, 2), std::invalid_argument);
  EXPECT_THROW(concat({a, random_array({3, 4}, 7)}, 1), std::invalid_argument);
  EXPECT_THROW(concat({a, random_array({2, 3, 1}, 7)}, 1), std::invalid_argument);
  EXPECT_THROW(concat({a, mx::zeros({2, 3}, mx::int32)}, 1), std::invalid_argument);
}

TEST(Concat, HasGradients) {
  const mx::array a = random_array({2, 3}, 8);
  const auto sum_of_squares = [](const mx::array& x) {
    return mx::sum(mx::square(concat({x, x}, 1)));
  };
  const Floats gradient = values_of(mx::grad(sum_of_squares)(a));
  const Floats values = values_of(a);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_FLOAT_EQ(gradient[i], 4 * values[i]);
}

}  // namespace
}  // namespace mere::test
