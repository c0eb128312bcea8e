#include "kernels/rope.h"

#include <cmath>

#include "arrays.h"

#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

struct Angles {
  mx::array cos, sin;
};

Angles random_angles(int tokens, int half) {
  Floats cos;
  Floats sin;
  for (const float angle : random_floats(static_cast<size_t>(tokens * half), 20, -4, 4)) {
    cos.push_back(std::cos(angle));
    sin.push_back(std::sin(angle));
  }
  return {to_array(cos, {tokens, half}), to_array(sin, {tokens, half})};
}

Floats want_of(const mx::array& x, const Angles& angles, RopePairs pairs) {
  return ref::rope(values_of(x), values_of(angles.cos), values_of(angles.sin), x.shape(2),
                   x.shape(3), pairs == RopePairs::kAdjacent);
}

class Rope : public testing::TestWithParam<RopePairs> {};
INSTANTIATE_TEST_SUITE_P(Pairs, Rope, testing::Values(RopePairs::kAdjacent, RopePairs::kHalves));

TEST_P(Rope, MatchesReferenceAtEveryTail) {
  for (const int depth : {2, 4, 6, 14, 16, 18, 32, 34, 62, 64, 66, 96, 128, 130, 256}) {
    const mx::array x = random_array({2, 3, 5, depth}, 21);
    const Angles angles = random_angles(5, depth / 2);
    SCOPED_TRACE(depth);
    expect_close(rope(x, angles.cos, angles.sin, GetParam()), want_of(x, angles, GetParam()), 1e-6,
                 1e-6);
  }
}

TEST_P(Rope, ReadsEveryView) {
  const mx::array x = random_array({2, 3, 5, 34}, 22);
  const Angles angles = random_angles(5, 17);
  const Floats want = want_of(x, angles, GetParam());
  const auto run = [&](const mx::array& view) {
    expect_close(rope(view, angles.cos, angles.sin, GetParam()), want, 1e-6, 1e-6);
  };
  run(inside_wider(x));
  run(stored_swapped(x, 1, 2));  // heads merged: how a projection gives it
  run(inside_wider(stored_swapped(x, 1, 2)));
  run(stored_swapped(x, 2, 3));
  run(every_other(x));
  run(stored_backwards(x, 2));
  expect_close(rope(x, every_other(angles.cos), stored_swapped(angles.sin, 0, 1), GetParam()), want,
               1e-6, 1e-6);
}

TEST_P(Rope, ResultIsStoredByToken) {
  mx::array y = mx::swapaxes(
      rope(random_array({1, 3, 5, 8}, 23), mx::ones({5, 4}), mx::zeros({5, 4}), GetParam()), 1, 2);
  mx::eval(y);
  EXPECT_TRUE(y.flags().row_contiguous);
}

TEST_P(Rope, KeepsNanAndInf) {
  const Angles angles = random_angles(3, 9);
  for (const float bad : {kNan, kInf}) {
    for (const size_t at : {0, 17, 53}) {
      const Floats x = with_value(random_floats(3 * 18, 24), at, bad);
      EXPECT_FALSE(
          all_finite(rope(to_array(x, {1, 1, 3, 18}), angles.cos, angles.sin, GetParam())));
    }
  }
}

TEST_P(Rope, GradientsMatchDifferences) {
  const Angles angles = random_angles(3, 3);
  const auto op = [pairs = GetParam()](const Arrays& in) {
    return rope(in[0], in[1], in[2], pairs);
  };
  const Arrays inputs = {random_array({2, 2, 3, 6}, 25), angles.cos, angles.sin};
  expect_gradients(op, inputs, {0});
  expect_gradients(op, inputs, {1, 2});
  expect_fallback_agrees(op, inputs);
}

TEST_P(Rope, RefusesMismatches) {
  const mx::array x = mx::zeros({1, 2, 4, 6});
  const mx::array table = mx::zeros({4, 3});
  EXPECT_THROW(rope(mx::zeros({1, 2, 4, 5}), table, table, GetParam()), std::invalid_argument);
  EXPECT_THROW(rope(x, mx::zeros({5, 3}), table, GetParam()), std::invalid_argument);
  EXPECT_THROW(rope(x, table, mx::zeros({4, 2}), GetParam()), std::invalid_argument);
  EXPECT_THROW(rope(x, mx::astype(table, mx::float16), table, GetParam()), std::invalid_argument);
}

}  // namespace
}  // namespace mere::test
