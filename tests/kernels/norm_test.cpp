#include "kernels/norm.h"

#include "arrays.h"

#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

constexpr float kEps = 1e-6F;

constexpr int kWidths[] = {1, 2, 5, 8, 15, 16, 17, 33, 64, 127, 1000, 3072};

TEST(RmsNorm, MatchesReferenceAtEveryTail) {
  for (const int width : kWidths) {
    SCOPED_TRACE(width);
    const Floats x = random_floats(6 * width, 30, -3, 3);
    const Floats weight = random_floats(width, 31);
    expect_close(rms_norm(to_array(x, {2, 3, width}), to_array(weight, {width}), kEps),
                 ref::rms_norm(x, weight, kEps));
  }
}

// rows: batch rows of scale and shift, one for all or one each.
void check_layer_norm(int width, int rows) {
  const Floats x = random_floats(6 * width, 32, -2, 5);
  const Floats scale = random_floats(rows * width, 33);
  const Floats shift = random_floats(rows * width, 34);
  expect_close(layer_norm_modulated(to_array(x, {2, 3, width}), to_array(scale, {rows, 1, width}),
                                    to_array(shift, {rows, 1, width}), kEps),
               ref::layer_norm_modulated(x, scale, shift, 3, width, kEps), 1e-4, 1e-4);
}

TEST(LayerNorm, MatchesReferenceAtEveryTail) {
  for (const int width : kWidths) {
    SCOPED_TRACE(width);
    check_layer_norm(width, 1);
    check_layer_norm(width, 2);
  }
}

TEST(LayerNorm, TakesOneScaleRowAndManyShiftRows) {
  const mx::array x = random_array({2, 3, 5}, 35);
  const mx::array scale = random_array({1, 1, 5}, 36);
  const mx::array shift = random_array({2, 1, 5}, 37);
  expect_close(layer_norm_modulated(x, scale, shift, kEps),
               values_of(layer_norm_modulated(x, mx::repeat(scale, 2, 0), shift, kEps)));
}

TEST(RmsNorm, ReadsEveryView) {
  const mx::array x = random_array({2, 5, 37}, 38);
  const mx::array weight = random_array({37}, 39);
  const Floats want = ref::rms_norm(values_of(x), values_of(weight), kEps);
  expect_close(rms_norm(inside_wider(x), every_other(weight), kEps), want);
  expect_close(rms_norm(stored_swapped(x, 0, 1), inside_wider(weight), kEps), want);
  expect_close(rms_norm(stored_swapped(x, 1, 2), stored_backwards(weight, 0), kEps), want);
  expect_close(rms_norm(every_other(x), weight, kEps), want);
  const mx::array gain = mx::broadcast_to(mx::array(2.0F), {37});
  expect_close(rms_norm(x, gain, kEps), ref::rms_norm(values_of(x), Floats(37, 2.0F), kEps));
}

TEST(LayerNorm, ReadsEveryView) {
  const mx::array x = random_array({2, 5, 37}, 40);
  const mx::array scale = random_array({2, 1, 37}, 41);
  const mx::array shift = random_array({2, 1, 37}, 42);
  const Floats want =
      ref::layer_norm_modulated(values_of(x), values_of(scale), values_of(shift), 5, 37, kEps);
  const auto run = [&](const mx::array& a, const mx::array& b, const mx::array& c) {
    expect_close(layer_norm_modulated(a, b, c, kEps), want, 1e-4, 1e-5);
  };
  run(inside_wider(x), inside_wider(scale), every_other(shift));
  run(stored_swapped(x, 0, 1), stored_swapped(scale, 0, 2), shift);
  run(stored_swapped(x, 1, 2), stored_backwards(scale, 0), stored_backwards(shift, 2));
}

struct GroupCase {
  int batch, height, width, channels, groups;
};
class GroupNorm : public testing::TestWithParam<GroupCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, GroupNorm,
                         testing::Values(GroupCase{1, 1, 1, 1, 1}, GroupCase{1, 1, 1, 6, 3},
                                         GroupCase{2, 3, 5, 7, 1}, GroupCase{2, 3, 5, 7, 7},
                                         GroupCase{1, 4, 4, 32, 32}, GroupCase{3, 1, 9, 96, 32},
                                         GroupCase{1, 37, 29, 64, 32}, GroupCase{2, 33, 35, 20, 4},
                                         GroupCase{1, 8, 8, 100, 5}, GroupCase{1, 65, 63, 12, 3}));

TEST_P(GroupNorm, MatchesReference) {
  const auto [batch, height, width, channels, groups] = GetParam();
  const mx::Shape shape = {batch, height, width, channels};
  const Floats x = random_floats(element_count(shape), 43, -1, 4);
  const Floats weight = random_floats(channels, 44);
  const Floats bias = random_floats(channels, 45);
  for (const bool silu : {false, true}) {
    expect_close(group_norm(to_array(x, shape), to_array(weight, {channels}),
                            to_array(bias, {channels}), groups, kEps, silu),
                 ref::group_norm(x, weight, bias, batch, channels, groups, kEps, silu), 1e-4, 1e-4);
  }
}

// float32 sums of squares would leave nothing of this variance.
TEST(GroupNorm, KeepsASmallVarianceUnderALargeMean) {
  const mx::Shape shape = {1, 64, 64, 4};
  Floats x = random_floats(element_count(shape), 46);
  for (float& v : x) v = 1000.0F + std::round(v * 128) / 128;
  const Floats ones(4, 1.0F);
  const Floats zeros(4, 0.0F);
  expect_close(group_norm(to_array(x, shape), mx::ones({4}), mx::zeros({4}), 2, kEps, false),
               ref::group_norm(x, ones, zeros, 1, 4, 2, kEps, false), 1e-3, 1e-3);
}

TEST(GroupMoments, OfAPartAreThoseOfThePartAlone) {
  const mx::array x = random_array({2, 9, 7, 12}, 63, -1, 4);
  const PixelRect rect{2, 1, 5, 3};
  const mx::array part = mx::slice(x, {0, 2, 1, 0}, {2, 7, 4, 12});
  const mx::array groups = mx::reshape(part, {2, 5 * 3, 4, 3});
  const Floats want = values_of(mx::stack(
      {mx::mean(groups, std::vector<int>{1, 3}), mx::var(groups, std::vector<int>{1, 3})}, -1));
  expect_close(group_moments(x, 4, rect), want, 1e-5, 1e-6);
  expect_close(group_moments(stored_swapped(x, 1, 3), 4, rect), want, 1e-5, 1e-6);
  const auto op = [&](const Arrays& in) { return group_moments(in[0], 2, {1, 0, 1, 2}); };
  expect_gradients(op, {random_array({1, 2, 2, 4}, 64)}, {0});
  expect_fallback_agrees(op, {random_array({1, 2, 2, 4}, 64)});
}

TEST(GroupNorm, TakesGivenMoments) {
  const mx::array x = random_array({2, 5, 3, 12}, 65, -1, 4);
  const mx::array weight = random_array({12}, 66);
  const mx::array bias = random_array({12}, 67);
  const mx::array own = group_moments(x, 4, {0, 0, 5, 3});
  expect_close(group_norm(x, weight, bias, 4, kEps, true, own),
               values_of(group_norm(x, weight, bias, 4, kEps, true)));
  // Twice the distance from the mean under four times the variance.
  const mx::array mean = mx::slice(own, {0, 0, 0}, {2, 4, 1});
  const mx::array wide = mx::concatenate({mean, mx::slice(own, {0, 0, 1}, {2, 4, 2}) * 4.0F}, 2);
  const mx::array shift = mx::reshape(mx::repeat(mean, 3, 1), {2, 1, 1, 12});
  expect_close(group_norm(shift + (x - shift) * 2.0F, weight, bias, 4, kEps, false, wide),
               values_of(group_norm(x, weight, bias, 4, kEps, false)), 1e-4, 1e-4);
  const auto op = [](const Arrays& in) {
    return group_norm(in[0], in[1], in[2], 2, kEps, true, in[3]);
  };
  const Arrays inputs = {random_array({2, 2, 2, 4}, 68), random_array({4}, 69),
                         random_array({4}, 70), random_array({2, 2, 2}, 71, 0.5F, 1)};
  expect_gradients(op, inputs, {0, 1, 2, 3});
  expect_fallback_agrees(op, inputs);
}

TEST(GroupNorm, ReadsEveryView) {
  const mx::array x = random_array({2, 5, 3, 12}, 47);
  const mx::array weight = random_array({12}, 48);
  const mx::array bias = random_array({12}, 49);
  const Floats want =
      ref::group_norm(values_of(x), values_of(weight), values_of(bias), 2, 12, 4, kEps, true);
  const auto run = [&](const mx::array& view) {
    expect_close(group_norm(view, every_other(weight), stored_backwards(bias, 0), 4, kEps, true),
                 want, 1e-4, 1e-5);
  };
  run(inside_wider(x));
  run(stored_swapped(x, 1, 3));
  run(stored_swapped(x, 0, 1));
  run(every_other(x));
}

TEST(Norm, KeepsNanAndInf) {
  const Floats x = random_floats(2 * 34, 50);
  const mx::array ones = mx::ones({34});
  const mx::array zeros = mx::zeros({1, 1, 34});
  // Squares of 1e30 overflow: dividing by them would hide the value behind zeros.
  for (const float bad : {kNan, kInf, -kInf, 1e30F}) {
    for (const size_t at : {0, 16, 33, 67}) {
      const Floats broken = with_value(x, at, bad);
      EXPECT_FALSE(all_finite(rms_norm(to_array(broken, {2, 34}), ones, kEps))) << bad;
      EXPECT_FALSE(
          all_finite(layer_norm_modulated(to_array(broken, {1, 2, 34}), zeros, zeros, kEps)))
          << bad;
      for (const bool silu : {false, true}) {
        EXPECT_FALSE(all_finite(
            group_norm(to_array(broken, {1, 1, 2, 34}), ones, mx::zeros({34}), 2, kEps, silu)))
            << bad;
      }
    }
  }
  const mx::array broken = to_array(with_value(x, 40, kNan), {1, 2, 34});
  const mx::array row = mx::slice(broken, {0, 1, 0}, {1, 2, 34});
  const mx::array fine = to_array(x, {1, 2, 34});
  EXPECT_FALSE(all_finite(rms_norm(fine, mx::reshape(row, {34}), kEps)));
  EXPECT_FALSE(all_finite(layer_norm_modulated(fine, row, zeros, kEps)));
  EXPECT_FALSE(all_finite(layer_norm_modulated(fine, zeros, row, kEps)));
}

TEST(Norm, GradientsMatchDifferences) {
  const auto rms = [](const Arrays& in) { return rms_norm(in[0], in[1], kEps); };
  const Arrays rms_in = {random_array({2, 5}, 51), random_array({5}, 52)};
  expect_gradients(rms, rms_in, {0, 1});
  expect_fallback_agrees(rms, rms_in);

  const auto layer = [](const Arrays& in) {
    return layer_norm_modulated(in[0], in[1], in[2], kEps);
  };
  const Arrays layer_in = {random_array({2, 2, 5}, 53), random_array({1, 1, 5}, 54),
                           random_array({2, 1, 5}, 55)};
  expect_gradients(layer, layer_in, {0, 1, 2});
  expect_fallback_agrees(layer, layer_in);

  for (const bool silu : {false, true}) {
    const auto group = [silu](const Arrays& in) {
      return group_norm(in[0], in[1], in[2], 2, kEps, silu);
    };
    const Arrays group_in = {random_array({2, 2, 2, 4}, 56), random_array({4}, 57),
                             random_array({4}, 58)};
    expect_gradients(group, group_in, {0, 1, 2});
    expect_fallback_agrees(group, group_in);
  }
}

TEST(Norm, IsDeterministic) {
  expect_deterministic([](const Arrays& in) { return rms_norm(in[0], in[1], kEps); },
                       {random_array({40, 1000}, 59), random_array({1000}, 60)});
  expect_deterministic(
      [](const Arrays& in) { return group_norm(in[0], in[1], in[1], 8, kEps, true); },
      {random_array({1, 67, 61, 64}, 61), random_array({64}, 62)});
}

TEST(Norm, RefusesMismatches) {
  const mx::array x = mx::zeros({3, 4, 6});
  const mx::array one = mx::zeros({1, 1, 6});
  EXPECT_THROW(rms_norm(x, mx::zeros({5}), kEps), std::invalid_argument);
  EXPECT_THROW(rms_norm(mx::array(1.0F), mx::zeros({1}), kEps), std::invalid_argument);
  EXPECT_THROW(rms_norm(x, mx::zeros({6}, mx::bfloat16), kEps), std::invalid_argument);
  EXPECT_THROW(layer_norm_modulated(x, mx::zeros({2, 1, 6}), one, kEps), std::invalid_argument);
  EXPECT_THROW(layer_norm_modulated(x, one, mx::zeros({3, 4, 6}), kEps), std::invalid_argument);
  const mx::array image = mx::zeros({1, 2, 2, 6});
  const mx::array c = mx::zeros({6});
  EXPECT_THROW(group_norm(image, c, c, 4, kEps, false), std::invalid_argument);
  EXPECT_THROW(group_norm(image, c, c, 0, kEps, false), std::invalid_argument);
  EXPECT_THROW(group_norm(image, c, mx::zeros({5}), 2, kEps, false), std::invalid_argument);
  EXPECT_THROW(group_norm(image, c, c, 2, kEps, false, mx::zeros({1, 3, 2})),
               std::invalid_argument);
  for (const PixelRect& rect : {PixelRect{0, 0, 3, 2}, PixelRect{-1, 0, 1, 1},
                                PixelRect{0, 1, 2, 2}, PixelRect{1, 1, 0, 1}}) {
    EXPECT_THROW(group_moments(image, 2, rect), std::invalid_argument);
  }
  EXPECT_THROW(group_moments(image, 4, {0, 0, 2, 2}), std::invalid_argument);
}

}  // namespace
}  // namespace mere::test
