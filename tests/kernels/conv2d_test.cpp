#include "kernels/conv2d.h"

#include "arrays.h"

#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

struct ConvCase {
  int batch, height, width, in, out, kernel, stride;
  ConvPadding pad;
};
void PrintTo(const ConvCase& c, std::ostream* os) {
  *os << c.batch << "x" << c.height << "x" << c.width << " " << c.in << "->" << c.out << " k"
      << c.kernel << " s" << c.stride << " pad " << c.pad.top << c.pad.bottom << c.pad.left
      << c.pad.right;
}

Floats want_of(const mx::array& x, const mx::array& weight, const Floats& bias, int stride,
               const ConvPadding& pad) {
  return ref::conv2d(values_of(x), values_of(weight), bias, x.shape(0), x.shape(1), x.shape(2),
                     x.shape(3), weight.shape(0), weight.shape(1), stride,
                     {pad.top, pad.bottom, pad.left, pad.right});
}

class Conv2d : public testing::TestWithParam<ConvCase> {};
constexpr ConvPadding kSame = {1, 1, 1, 1};
constexpr ConvPadding kBottomRight = {0, 1, 0, 1};
INSTANTIATE_TEST_SUITE_P(
    Shapes, Conv2d,
    testing::Values(ConvCase{1, 1, 1, 1, 1, 1, 1, {}}, ConvCase{1, 5, 7, 3, 4, 1, 1, {}},
                    ConvCase{2, 5, 7, 16, 32, 1, 1, {}}, ConvCase{1, 1, 1, 5, 6, 3, 1, kSame},
                    ConvCase{1, 6, 5, 3, 16, 3, 1, kSame}, ConvCase{2, 9, 11, 16, 3, 3, 1, kSame},
                    ConvCase{1, 8, 8, 32, 64, 3, 1, kSame}, ConvCase{2, 7, 5, 17, 33, 3, 1, kSame},
                    ConvCase{1, 8, 8, 16, 16, 3, 2, kBottomRight},
                    ConvCase{2, 7, 9, 5, 10, 3, 2, kBottomRight},
                    ConvCase{1, 6, 6, 8, 8, 3, 1, {2, 0, 1, 3}}, ConvCase{1, 9, 9, 4, 8, 3, 3, {}},
                    ConvCase{1, 8, 8, 12, 20, 2, 2, {}},
                    ConvCase{1, 12, 12, 3, 8, 5, 1, {2, 2, 2, 2}},
                    ConvCase{1, 3, 40, 24, 48, 3, 1, kSame}));

TEST_P(Conv2d, MatchesReferenceInEveryStoredTypeAndOrder) {
  const auto [batch, height, width, in, out, kernel, stride, pad] = GetParam();
  const mx::array x = random_array({batch, height, width, in}, 300);
  const Floats bias = random_floats(out, 301);
  for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
    const mx::array dense = mx::astype(random_array({out, kernel, kernel, in}, 302), type);
    // Checkpoints store [Cout, Cin, kh, kw].
    const mx::array stored = mx::contiguous(mx::transpose(dense, {0, 3, 1, 2}));
    const Floats want = want_of(x, dense, bias, stride, pad);
    for (const mx::array& weight : {dense, mx::transpose(stored, {0, 2, 3, 1})}) {
      expect_close(conv2d(x, weight, to_array(bias, {out}), stride, pad), want, 1e-5, 1e-4);
    }
    expect_close(conv2d(x, dense, std::nullopt, stride, pad), want_of(x, dense, {}, stride, pad),
                 1e-5, 1e-4);
  }
}

TEST(Conv2d, ReadsEveryView) {
  const ConvPadding pad = {1, 0, 0, 2};
  const mx::array x = random_array({2, 5, 6, 7}, 303);
  const mx::array weight = random_array({9, 3, 3, 7}, 304);
  const mx::array bias = random_array({9}, 305);
  const Floats want = want_of(x, weight, values_of(bias), 1, pad);
  const auto run_x = [&](const mx::array& view) {
    expect_close(conv2d(view, weight, every_other(bias), 1, pad), want, 1e-5, 1e-4);
  };
  run_x(inside_wider(x));
  run_x(stored_swapped(x, 1, 3));
  run_x(every_other(x));
  run_x(stored_backwards(x, 1));
  for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
    const mx::array w = mx::astype(weight, type);
    const Floats want_w = want_of(x, w, {}, 1, pad);
    const auto run_w = [&](const mx::array& view) {
      expect_close(conv2d(x, view, std::nullopt, 1, pad), want_w, 1e-5, 1e-4);
    };
    run_w(inside_wider(w));
    run_w(stored_swapped(w, 0, 3));
    run_w(every_other(w));
    run_w(stored_backwards(w, 0));
    run_w(stored_backwards(w, 3));
    run_w(mx::slice(mx::concatenate({w, w}, 0), {9, 0, 0, 0}, {18, 3, 3, 7}));
    const mx::array same = mx::broadcast_to(mx::slice(w, {0, 0, 0, 0}, {1, 3, 3, 7}), w.shape());
    expect_close(conv2d(x, same, std::nullopt, 1, pad), want_of(x, same, {}, 1, pad), 1e-5, 1e-4);
  }
}

TEST(Conv2d, KernelNeedNotBeSquare) {
  const mx::array x = random_array({1, 5, 6, 4}, 306);
  const mx::array weight = random_array({3, 1, 3, 4}, 307);
  // The same as a square kernel whose other rows are 0.
  const mx::array square = mx::pad(weight, {{0, 0}, {1, 1}, {0, 0}, {0, 0}});
  expect_close(conv2d(x, weight, std::nullopt, 1, {0, 0, 1, 1}),
               want_of(x, square, {}, 1, {1, 1, 1, 1}), 1e-5, 1e-4);
}

TEST(Conv2d, KeepsNanAndInf) {
  const Floats x = random_floats(5 * 5 * 17, 308);
  const Floats w = random_floats(18 * 9 * 17, 309);
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const size_t at : {0, 16, 211, 424}) {
      EXPECT_FALSE(all_finite(conv2d(to_array(with_value(x, at, bad), {1, 5, 5, 17}),
                                     to_array(w, {18, 3, 3, 17}), std::nullopt, 1, kSame)));
      EXPECT_FALSE(all_finite(conv2d(to_array(x, {1, 5, 5, 17}),
                                     to_array(with_value(w, at, bad), {18, 3, 3, 17}), std::nullopt,
                                     1, kSame)));
    }
    const mx::array bias = to_array(with_value(Floats(18, 0.0F), 17, bad), {18});
    EXPECT_FALSE(all_finite(
        conv2d(to_array(x, {1, 5, 5, 17}), to_array(w, {18, 3, 3, 17}), bias, 1, kSame)));
  }
}

TEST(Conv2d, GradientsMatchDifferences) {
  for (const int stride : {1, 2}) {
    const auto op = [stride](const Arrays& in) {
      return conv2d(in[0], in[1], in[2], stride, {0, 1, 1, 0});
    };
    const Arrays inputs = {random_array({1, 4, 3, 2}, 310), random_array({2, 3, 2, 2}, 311),
                           random_array({2}, 312)};
    expect_gradients(op, inputs, {0, 1, 2});
    // The engine cannot map over the weight.
    const auto of_x = [&](const Arrays& in) { return op({in[0], inputs[1], inputs[2]}); };
    expect_fallback_agrees(of_x, {inputs[0]});
  }
}

TEST(Conv2d, IsDeterministic) {
  const mx::array weight = random_array({40, 3, 3, 24}, 313);
  expect_deterministic(
      [&](const Arrays& in) { return conv2d(in[0], weight, std::nullopt, 1, kSame); },
      {random_array({1, 30, 31, 24}, 314)});
}

TEST(Conv2d, RefusesMismatches) {
  const mx::array x = mx::zeros({1, 4, 4, 3});
  const mx::array w = mx::zeros({5, 3, 3, 3});
  EXPECT_THROW(conv2d(x, mx::zeros({5, 3, 3, 4}), std::nullopt, 1, {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, w, mx::zeros({4}), 1, {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, w, std::nullopt, 0, {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, w, std::nullopt, 1, {-1, 0, 0, 0}), std::invalid_argument);
  EXPECT_THROW(conv2d(mx::zeros({1, 2, 4, 3}), w, std::nullopt, 1, {}), std::invalid_argument);
  EXPECT_THROW(conv2d(mx::astype(x, mx::bfloat16), w, std::nullopt, 1, {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, mx::astype(w, mx::int32), std::nullopt, 1, {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, mx::zeros({0, 3, 3, 3}), std::nullopt, 1, {}), std::invalid_argument);
}

TEST(UpsampleNearest2x, RepeatsEveryPixel) {
  const mx::array x = random_array({2, 3, 5, 7}, 315);
  const Floats want = values_of(mx::repeat(mx::repeat(x, 2, 1), 2, 2));
  EXPECT_EQ(values_of(upsample_nearest_2x(x)), want);
  EXPECT_EQ(values_of(upsample_nearest_2x(inside_wider(x))), want);
  EXPECT_EQ(values_of(upsample_nearest_2x(stored_swapped(x, 1, 3))), want);
  EXPECT_THROW(upsample_nearest_2x(mx::zeros({3, 5, 7})), std::invalid_argument);
  EXPECT_THROW(upsample_nearest_2x(mx::zeros({1, 3, 5, 7}, mx::float16)), std::invalid_argument);
}

TEST(UpsampleNearest2x, GradientsMatchDifferences) {
  const auto op = [](const Arrays& in) { return upsample_nearest_2x(in[0]); };
  const Arrays inputs = {random_array({1, 2, 3, 2}, 316)};
  expect_gradients(op, inputs, {0});
  expect_fallback_agrees(op, inputs);
}

}  // namespace
}  // namespace mere::test
