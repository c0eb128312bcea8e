#include "kernels/activation.h"

#include "arrays.h"

#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

constexpr int kWidths[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 100, 257, 10001};

TEST(Silu, LargestNegativeNumberGivesZero) {
  const Floats y = values_of(silu(to_array({-3.4e38F, -1e30F, -101.0F}, {3})));
  for (const float v : y) EXPECT_LT(std::abs(v), 1e-30F);
}

TEST(Silu, MatchesReferenceAtEveryTail) {
  for (const int width : kWidths) {
    SCOPED_TRACE(width);
    const Floats x = random_floats(3 * width, 1, -20, 20);
    expect_close(silu(to_array(x, {3, width})), ref::silu(x), 1e-6, 1e-6);
  }
}

TEST(Swiglu, MatchesReferenceAtEveryTail) {
  for (const int half : kWidths) {
    SCOPED_TRACE(half);
    const Floats x = random_floats(3 * 2 * half, 2, -5, 5);
    expect_close(swiglu(to_array(x, {3, 2 * half})), ref::swiglu(x, half), 1e-6, 1e-6);
  }
}

constexpr Gelu kForms[] = {Gelu::kErf, Gelu::kTanh};

TEST(Gelu, MatchesReferenceAtEveryTail) {
  for (const Gelu form : kForms) {
    for (const int width : kWidths) {
      SCOPED_TRACE(width);
      const Floats x = random_floats(3 * width, 20, -15, 15);
      expect_close(gelu(to_array(x, {3, width}), form), ref::gelu(x, form == Gelu::kTanh), 1e-6,
                   1e-6);
    }
  }
}

// Where 1 + erf(x / sqrt(2)) has lost all digits.
TEST(Gelu, KeepsTheDigitsOfTheTail) {
  Floats x;
  for (float v = -12; v < 0; v += 0.01F) x.push_back(v);
  const int count = static_cast<int>(x.size());
  expect_close(gelu(to_array(x, {count}), Gelu::kErf), ref::gelu(x, false), 2e-5, 1e-36);
}

// gelu of one half times the other, out of their own definitions.
TEST(Geglu, MatchesReferenceAtEveryTail) {
  for (const Gelu form : kForms) {
    for (const int half : kWidths) {
      SCOPED_TRACE(half);
      const Floats first = random_floats(half, 21, -5, 5);
      const Floats second = random_floats(half, 22, -5, 5);
      Floats both = first;
      both.insert(both.end(), second.begin(), second.end());
      const auto check = [&](GateHalf gate, Floats want, const Floats& value) {
        for (int i = 0; i < half; ++i) want[i] *= value[i];
        expect_close(geglu(to_array(both, {1, 2 * half}), form, gate), want, 2e-6, 2e-6);
      };
      check(GateHalf::kFirst, ref::gelu(first, form == Gelu::kTanh), second);
      check(GateHalf::kSecond, ref::gelu(second, form == Gelu::kTanh), first);
    }
  }
}

TEST(Gelu, TakesExtremesAndAnyShape) {
  const Floats x = {-1e30F, -1000, -89, -14,     -10,   -1e-30F, 0,
                    1e-30F, 10,    14,  1000.0F, 1e30F, 3e38F,   -3e38F};
  for (const Gelu form : kForms) {
    expect_close(gelu(to_array(x, {14}), form), ref::gelu(x, form == Gelu::kTanh), 1e-6, 1e-6);
    expect_close(gelu(mx::array(2.0F), form), ref::gelu({2.0F}, form == Gelu::kTanh));
    EXPECT_EQ(values_of(gelu(mx::zeros({0, 4}), form)).size(), 0U);
    EXPECT_EQ(values_of(geglu(mx::zeros({0, 4}), form, GateHalf::kFirst)).size(), 0U);
  }
}

TEST(Gelu, ReadsEveryView) {
  const mx::array x = random_array({2, 5, 38}, 23, -5, 5);
  for (const Gelu form : kForms) {
    const Floats want = ref::gelu(values_of(x), form == Gelu::kTanh);
    const Floats gated = values_of(geglu(x, form, GateHalf::kSecond));
    for (const mx::array& view : {inside_wider(x), stored_swapped(x, 0, 1), stored_swapped(x, 1, 2),
                                  every_other(x), stored_backwards(x, 1), stored_backwards(x, 2)}) {
      expect_close(gelu(view, form), want, 1e-6, 1e-6);
      EXPECT_EQ(values_of(geglu(view, form, GateHalf::kSecond)), gated);
    }
  }
}

// gates: batch rows of the gate, one for all or one each.
void check_gated_residual(int width, int gates) {
  const Floats residual = random_floats(2 * 3 * width, 3);
  const Floats gate = random_floats(gates * width, 4);
  const Floats x = random_floats(2 * 3 * width, 5);
  Floats want;
  for (int i = 0; i < 2 * 3 * width; ++i) {
    const int b = gates == 1 ? 0 : i / (3 * width);
    want.push_back(residual[i] + gate[b * width + i % width] * x[i]);
  }
  expect_close(gated_residual(to_array(residual, {2, 3, width}), to_array(gate, {gates, 1, width}),
                              to_array(x, {2, 3, width})),
               want, 1e-6, 1e-6);
}

TEST(GatedResidual, MatchesDefinitionAtEveryTail) {
  for (const int width : kWidths) {
    SCOPED_TRACE(width);
    check_gated_residual(width, 1);
    check_gated_residual(width, 2);
  }
}

TEST(Silu, TakesExtremesAndAnyShape) {
  const Floats x = {-1e30F, -1000, -104, -89, -88, -87, -1e-30F, 0, 1e-30F, 88, 104, 1000, 1e30F};
  expect_close(silu(to_array(x, {13})), ref::silu(x), 1e-6, 1e-6);
  expect_close(silu(mx::array(2.0F)), ref::silu({2.0F}));
  EXPECT_EQ(values_of(silu(mx::zeros({0, 4}))).size(), 0U);
}

TEST(Silu, ReadsEveryView) {
  const mx::array x = random_array({2, 5, 37}, 6, -5, 5);
  const Floats want = ref::silu(values_of(x));
  expect_close(silu(inside_wider(x)), want, 1e-6, 1e-6);
  expect_close(silu(stored_swapped(x, 0, 1)), want, 1e-6, 1e-6);
  expect_close(silu(stored_swapped(x, 1, 2)), want, 1e-6, 1e-6);
  expect_close(silu(every_other(x)), want, 1e-6, 1e-6);
  expect_close(silu(stored_backwards(x, 1)), want, 1e-6, 1e-6);
  expect_close(silu(stored_backwards(x, 2)), want, 1e-6, 1e-6);
  const mx::array row = random_array({1, 1, 9}, 7);
  const mx::array repeated = mx::broadcast_to(row, {2, 3, 9});
  expect_close(silu(repeated), ref::silu(values_of(repeated)), 1e-6, 1e-6);
  const mx::array column = mx::broadcast_to(random_array({2, 3, 1}, 8), {2, 3, 9});
  expect_close(silu(column), ref::silu(values_of(column)), 1e-6, 1e-6);
}

TEST(Swiglu, ReadsEveryView) {
  const mx::array x = random_array({2, 5, 38}, 9);
  const Floats want = ref::swiglu(values_of(x), 19);
  expect_close(swiglu(inside_wider(x)), want);
  expect_close(swiglu(stored_swapped(x, 0, 1)), want);
  expect_close(swiglu(stored_swapped(x, 1, 2)), want);
  expect_close(swiglu(every_other(x)), want);
}

TEST(GatedResidual, ReadsEveryView) {
  const mx::array residual = random_array({2, 5, 19}, 10);
  const mx::array gate = random_array({2, 1, 19}, 11);
  const mx::array x = random_array({2, 5, 19}, 12);
  const Floats want = values_of(residual + gate * x);
  expect_close(gated_residual(inside_wider(residual), inside_wider(gate), inside_wider(x)), want);
  expect_close(gated_residual(every_other(residual), every_other(gate), every_other(x)), want);
  expect_close(gated_residual(stored_swapped(residual, 0, 1), stored_swapped(gate, 0, 2),
                              stored_swapped(x, 1, 2)),
               want);
  const mx::array one = mx::broadcast_to(random_array({1, 1, 19}, 13), {2, 1, 19});
  expect_close(gated_residual(residual, one, x), values_of(residual + one * x));
}

// What is broken must stay visible to the checks between stages.
TEST(Activation, KeepsNanAndInf) {
  const Floats x = random_floats(2 * 34, 14);
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const size_t at : {0, 16, 33}) {
      const mx::array broken = to_array(with_value(x, at, bad), {1, 2, 34});
      EXPECT_FALSE(all_finite(silu(broken))) << bad;
      EXPECT_FALSE(all_finite(swiglu(broken))) << bad;
      for (const Gelu form : kForms) {
        EXPECT_FALSE(all_finite(gelu(broken, form))) << bad;
        EXPECT_FALSE(all_finite(geglu(broken, form, GateHalf::kFirst))) << bad;
        EXPECT_FALSE(all_finite(geglu(broken, form, GateHalf::kSecond))) << bad;
      }
      const mx::array fine = to_array(x, {2, 1, 34});
      const mx::array rows = mx::reshape(broken, {2, 1, 34});
      EXPECT_FALSE(all_finite(gated_residual(rows, fine, fine)));
      EXPECT_FALSE(all_finite(gated_residual(fine, rows, fine)));
      EXPECT_FALSE(all_finite(gated_residual(fine, fine, rows)));
    }
  }
}

TEST(Activation, GradientsMatchDifferences) {
  const auto silu_op = [](const Arrays& in) { return silu(in[0]); };
  const auto swiglu_op = [](const Arrays& in) { return swiglu(in[0]); };
  const auto gated_op = [](const Arrays& in) { return gated_residual(in[0], in[1], in[2]); };
  const Arrays pair = {random_array({2, 10}, 15, -3, 3)};
  const Arrays gated = {random_array({2, 3, 5}, 16), random_array({1, 1, 5}, 17),
                        random_array({2, 3, 5}, 18)};
  expect_gradients(silu_op, pair, {0});
  expect_gradients(swiglu_op, pair, {0});
  expect_gradients(gated_op, gated, {0, 1, 2});
  expect_fallback_agrees(silu_op, pair);
  expect_fallback_agrees(swiglu_op, pair);
  expect_fallback_agrees(gated_op, gated);
  for (const Gelu form : kForms) {
    const auto gelu_op = [form](const Arrays& in) { return gelu(in[0], form); };
    expect_gradients(gelu_op, pair, {0});
    expect_fallback_agrees(gelu_op, pair);
    for (const GateHalf gate : {GateHalf::kFirst, GateHalf::kSecond}) {
      const auto geglu_op = [=](const Arrays& in) { return geglu(in[0], form, gate); };
      expect_gradients(geglu_op, pair, {0});
      expect_fallback_agrees(geglu_op, pair);
    }
  }
}

TEST(Activation, IsDeterministic) {
  const Arrays x = {random_array({3, 4, 1000}, 19)};
  expect_deterministic([](const Arrays& in) { return silu(in[0]); }, x);
  expect_deterministic([](const Arrays& in) { return swiglu(in[0]); }, x);
}

TEST(Activation, RefusesMismatches) {
  const mx::array x = mx::zeros({3, 4, 6});
  EXPECT_THROW(silu(mx::zeros({4}, mx::bfloat16)), std::invalid_argument);
  EXPECT_THROW(swiglu(mx::zeros({5})), std::invalid_argument);
  EXPECT_THROW(swiglu(mx::array(1.0F)), std::invalid_argument);
  EXPECT_THROW(gelu(mx::zeros({4}, mx::bfloat16), Gelu::kErf), std::invalid_argument);
  EXPECT_THROW(geglu(mx::zeros({5}), Gelu::kErf, GateHalf::kFirst), std::invalid_argument);
  EXPECT_THROW(geglu(mx::array(1.0F), Gelu::kErf, GateHalf::kFirst), std::invalid_argument);
  EXPECT_THROW(gated_residual(x, mx::zeros({2, 1, 6}), x), std::invalid_argument);
  EXPECT_THROW(gated_residual(x, mx::zeros({3, 4, 6}), x), std::invalid_argument);
  EXPECT_THROW(gated_residual(x, mx::zeros({1, 1, 5}), x), std::invalid_argument);
  EXPECT_THROW(gated_residual(mx::zeros({3, 4, 5}), mx::zeros({1, 1, 6}), x),
               std::invalid_argument);
}

}  // namespace
}  // namespace mere::test
