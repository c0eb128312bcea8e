#include "kernels/top_k.h"

#include <numeric>

#include "arrays.h"

#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

using Indices = std::vector<int32_t>;

Indices indices_of(const mx::array& a) {
  EXPECT_EQ(a.dtype(), mx::int32);
  mx::array dense = mx::contiguous(a);
  mx::eval(dense);
  return {dense.data<int32_t>(), dense.data<int32_t>() + dense.size()};
}

void check(const Floats& x, int rows, int k) {
  const int width = static_cast<int>(x.size()) / rows;
  const Indices want = ref::top_k(x, width, k);
  const TopK got = top_k(to_array(x, {rows, width}), k);
  EXPECT_EQ(got.values.shape(), (mx::Shape{rows, k}));
  EXPECT_EQ(indices_of(got.indices), want);
  Floats values;
  for (size_t i = 0; i < want.size(); ++i) values.push_back(x[i / k * width + want[i]]);
  expect_close(got.values, values, 0, 0);
  EXPECT_EQ(indices_of(argmax_rows(to_array(x, {rows, width}))), ref::top_k(x, width, 1));
}

TEST(TopK, MatchesReference) {
  for (const int width : {1, 2, 7, 8, 16, 17, 33, 100, 5003}) {
    for (const int k : {1, 2, 5, 16, 99, 5003}) {
      if (k > width) continue;
      SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(width));
      check(random_floats(3 * width, 420), 3, k);
    }
  }
}

TEST(TopK, EqualValuesComeByIndex) {
  Floats few = random_floats(3 * 501, 421);
  for (float& v : few) v = std::floor(v * 3);
  for (const int k : {1, 4, 17, 501}) check(few, 3, k);
  check(Floats(100, 1.0F), 2, 7);
  check({0.0F, -0.0F, 0.0F, -1.0F, -0.0F}, 1, 4);
}

TEST(TopK, TakesSortedRows) {
  Floats rising(2000);
  std::iota(rising.begin(), rising.end(), -1000.0F);
  check(rising, 1, 40);
  check({rising.rbegin(), rising.rend()}, 1, 40);
}

TEST(TopK, NanComesFirstAndInfCounts) {
  const Floats x = random_floats(2 * 37, 422);
  for (const size_t at : {0, 5, 17, 36}) {
    for (const float special : {kNan, -kNan, kInf, -kInf}) {
      check(with_value(x, at, special), 2, 3);
      check(with_value(with_value(x, at, special), 20, kNan), 2, 3);
      check(with_value(with_value(x, at, special), 20, kInf), 2, 37);
    }
  }
  check(Floats(37, kNan), 1, 5);
  check(Floats(37, -kInf), 1, 5);
}

TEST(TopK, ReadsEveryView) {
  const mx::array x = random_array({3, 5, 37}, 423);
  const Indices want = ref::top_k(values_of(x), 37, 4);
  const Indices best = ref::top_k(values_of(x), 37, 1);
  for (const mx::array& view : {inside_wider(x), stored_swapped(x, 0, 1), stored_swapped(x, 1, 2),
                                every_other(x), stored_backwards(x, 0), stored_backwards(x, 2)}) {
    EXPECT_EQ(indices_of(top_k(view, 4).indices), want);
    EXPECT_EQ(indices_of(argmax_rows(view)), best);
  }
}

TEST(TopK, KeepsLeadingAxes) {
  const mx::array x = random_array({2, 3, 8}, 424);
  EXPECT_EQ(argmax_rows(x).shape(), (mx::Shape{2, 3}));
  EXPECT_EQ(top_k(x, 5).values.shape(), (mx::Shape{2, 3, 5}));
  EXPECT_EQ(argmax_rows(mx::zeros({8})).shape(), mx::Shape{});
  EXPECT_EQ(argmax_rows(mx::zeros({8})).item<int32_t>(), 0);
  const TopK none = top_k(mx::zeros({0, 8}), 5);
  mx::eval(none.values, none.indices);
  EXPECT_EQ(none.values.shape(), (mx::Shape{0, 5}));
  EXPECT_EQ(none.indices.shape(), (mx::Shape{0, 5}));
}

TEST(TopK, GradientReachesTheChosen) {
  const auto op = [](const Arrays& in) { return top_k(in[0], 3).values; };
  // Far enough apart for differences not to change the order.
  const Arrays inputs = {to_array({5, 1, 4, 2, 3, 0, -1, 9, 8, 2, 7, 6}, {2, 6})};
  expect_gradients(op, inputs, {0});
}

TEST(TopK, FallbackAgrees) {
  const Floats x = {1, kNan, 3, 3, -0.0F, 0, kInf, -kInf, -2, -1, kNan, kInf};
  const auto indices = [](const Arrays& in) { return top_k(in[0], 5).indices; };
  const auto best = [](const Arrays& in) { return argmax_rows(in[0]); };
  for (const mx::Shape& shape : {mx::Shape{1, 12}, mx::Shape{2, 6}, mx::Shape{12}}) {
    expect_fallback_agrees(indices, {to_array(x, shape)}, 0, 0);
    expect_fallback_agrees(best, {to_array(x, shape)}, 0, 0);
  }
  const Floats zeros = {-1, -0.0F, 0, -0.0F, 0, -3};
  expect_fallback_agrees(indices, {to_array(zeros, {6})}, 0, 0);
  expect_fallback_agrees(indices, {random_array({3, 50}, 425)}, 0, 0);
}

TEST(TopK, RefusesMismatches) {
  const mx::array x = mx::zeros({2, 5});
  EXPECT_THROW(top_k(x, 0), std::invalid_argument);
  EXPECT_THROW(top_k(x, -1), std::invalid_argument);
  EXPECT_THROW(top_k(x, 6), std::invalid_argument);
  EXPECT_THROW(top_k(mx::array(1.0F), 1), std::invalid_argument);
  EXPECT_THROW(top_k(mx::zeros({2, 5}, mx::float16), 1), std::invalid_argument);
  EXPECT_THROW(argmax_rows(mx::zeros({2, 0})), std::invalid_argument);
}

}  // namespace
}  // namespace mere::test
