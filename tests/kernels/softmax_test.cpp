#include "kernels/softmax.h"

#include "arrays.h"

#include "kernels/attention.h"
#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

constexpr double kLimit = 2e-6;

TEST(Softmax, MatchesReferenceAtEveryTail) {
  for (const int width : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 100, 257, 10001}) {
    SCOPED_TRACE(width);
    const Floats x = random_floats(5 * width, 400, -20, 20);
    expect_close(softmax_rows(to_array(x, {5, width})), ref::softmax(x, width), 5e-6, 1e-7);
  }
}

TEST(Softmax, TakesAnyShape) {
  const Floats x = random_floats(2 * 3 * 4 * 9, 401);
  const mx::array y = softmax_rows(to_array(x, {2, 3, 4, 9}));
  EXPECT_EQ(y.shape(), (mx::Shape{2, 3, 4, 9}));
  expect_close(y, ref::softmax(x, 9), kLimit, kLimit);
  expect_close(softmax_rows(to_array(random_floats(9, 402), {9})),
               ref::softmax(random_floats(9, 402), 9), kLimit, kLimit);
  EXPECT_EQ(values_of(softmax_rows(mx::zeros({0, 4}))).size(), 0U);
  EXPECT_EQ(values_of(softmax_rows(mx::zeros({4, 0}))).size(), 0U);
}

TEST(Softmax, ReadsEveryView) {
  const mx::array x = random_array({3, 5, 37}, 403, -5, 5);
  const Floats want = ref::softmax(values_of(x), 37);
  for (const mx::array& view : {inside_wider(x), stored_swapped(x, 0, 1), stored_swapped(x, 1, 2),
                                every_other(x), stored_backwards(x, 0), stored_backwards(x, 2)}) {
    expect_close(softmax_rows(view), want, kLimit, kLimit);
  }
  const mx::array repeated = mx::broadcast_to(random_array({1, 1, 37}, 404), {3, 5, 37});
  expect_close(softmax_rows(repeated), ref::softmax(values_of(repeated), 37), kLimit, kLimit);
}

TEST(Softmax, DoesNotOverflow) {
  const Floats x = {3e38F, -3e38F, 3e38F, 0, 1000, 999, -1000, -1e-30F};
  expect_close(softmax_rows(to_array(x, {2, 4})), ref::softmax(x, 4), kLimit, kLimit);
}

TEST(Softmax, HiddenValuesWeighNothing) {
  for (const int width : {3, 16, 37}) {
    Floats x = random_floats(2 * width, 405);
    for (int i = 0; i < width - 1; ++i) x[i] = -kInf;      // one value left
    for (int i = 0; i < width; ++i) x[width + i] = -kInf;  // none
    const Floats y = values_of(softmax_rows(to_array(x, {2, width})));
    Floats want(2 * width, 0.0F);
    want[width - 1] = 1.0F;
    EXPECT_EQ(y, want);
  }
  // As attention does.
  const mx::array one = mx::ones({1, 1, 1, 32});
  const AttentionMask none{false, mx::array({0}, {1})};
  EXPECT_EQ(values_of(attention(one, one, one, 1.0F, none)), Floats(32, 0.0F));
}

TEST(Softmax, KeepsNanAndInf) {
  const Floats x = random_floats(2 * 37, 406);
  const Floats hidden(2 * 37, -kInf);
  for (const float bad : {kNan, kInf}) {
    for (const size_t at : {0, 15, 36}) {
      for (const Floats& row : {x, hidden}) {
        const Floats y = values_of(softmax_rows(to_array(with_value(row, at, bad), {2, 37})));
        for (int i = 0; i < 37; ++i) EXPECT_TRUE(std::isnan(y[i])) << bad << " " << at;
        for (int i = 37; i < 74; ++i) EXPECT_TRUE(std::isfinite(y[i]));
      }
    }
  }
}

TEST(Softmax, GradientsMatchDifferences) {
  const auto op = [](const Arrays& in) { return softmax_rows(in[0]); };
  const Arrays inputs = {random_array({3, 7}, 407, -2, 2)};
  expect_gradients(op, inputs, {0});
  expect_fallback_agrees(op, inputs);
  Floats masked = values_of(inputs[0]);
  for (int i = 5; i < 14; ++i) masked[i] = -kInf;  // part of a row, and a row
  expect_fallback_agrees(op, {to_array(masked, {3, 7})});
  const auto first = [](const mx::array& x) {
    return mx::sum(mx::slice(softmax_rows(x), {0, 0}, {3, 1}));
  };
  EXPECT_TRUE(all_finite(mx::grad(first)(to_array(masked, {3, 7}))));
}

TEST(Softmax, IsDeterministic) {
  expect_deterministic([](const Arrays& in) { return softmax_rows(in[0]); },
                       {random_array({40, 1001}, 408)});
}

TEST(Softmax, RefusesMismatches) {
  EXPECT_THROW(softmax_rows(mx::zeros({4}, mx::bfloat16)), std::invalid_argument);
  EXPECT_THROW(softmax_rows(mx::array(1.0F)), std::invalid_argument);
}

}  // namespace
}  // namespace mere::test
