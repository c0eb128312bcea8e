#include "kernels/conv3d.h"

#include "arrays.h"

#include "kernels/conv2d.h"
#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

struct Conv3dCase {
  mx::Shape x, weight;  // [B, D, H, W, Cin], [Cout, kd, kh, kw, Cin]
  Conv3dStride stride;
  Conv3dPadding pad;
};
void PrintTo(const Conv3dCase& c, std::ostream* os) {
  for (const auto size : c.x) *os << size << " ";
  for (const auto size : c.weight) *os << "x" << size;
  *os << " stride " << c.stride.depth << " " << c.stride.plane << " front " << c.pad.front;
}

std::vector<int64_t> sizes(const mx::Shape& shape) { return {shape.begin(), shape.end()}; }

Floats want_of(const mx::array& x, const mx::array& weight, const Floats& bias,
               const Conv3dStride& stride, const Conv3dPadding& pad) {
  return ref::conv3d(values_of(x), sizes(x.shape()), values_of(weight), sizes(weight.shape()), bias,
                     stride.depth, stride.plane,
                     {pad.front, pad.back, pad.top, pad.bottom, pad.left, pad.right});
}

constexpr Conv3dPadding kSame = {1, 1, 1, 1, 1, 1};
constexpr Conv3dPadding kCausal = {2, 0, 1, 1, 1, 1};

class Conv3d : public testing::TestWithParam<Conv3dCase> {};
INSTANTIATE_TEST_SUITE_P(
    Shapes, Conv3d,
    testing::Values(Conv3dCase{{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {}, {}},
                    Conv3dCase{{2, 3, 5, 4, 3}, {4, 1, 1, 1, 3}, {}, {}},
                    Conv3dCase{{1, 4, 5, 6, 3}, {8, 3, 3, 3, 3}, {}, kSame},
                    Conv3dCase{{2, 5, 6, 5, 7}, {9, 3, 3, 3, 7}, {}, kCausal},
                    Conv3dCase{{1, 1, 6, 5, 16}, {3, 3, 3, 3, 16}, {}, kCausal},
                    Conv3dCase{{1, 4, 4, 4, 5}, {6, 3, 1, 1, 5}, {}, {.front = 2}},
                    Conv3dCase{{1, 4, 4, 4, 5}, {6, 2, 3, 2, 5}, {}, {0, 1, 2, 0, 0, 1}},
                    Conv3dCase{{2, 6, 6, 8, 4}, {5, 3, 3, 3, 4}, {1, 2}, {2, 0, 0, 1, 0, 1}},
                    Conv3dCase{{1, 7, 4, 5, 4}, {5, 3, 1, 1, 4}, {2, 1}, {}},
                    Conv3dCase{{2, 7, 6, 6, 4}, {5, 3, 3, 3, 4}, {2, 2}, kCausal},
                    Conv3dCase{{1, 7, 4, 4, 4}, {5, 2, 2, 2, 4}, {3, 1}, {1, 2, 0, 0, 0, 0}},
                    // more padding than the kernel reaches: slices of the bias alone
                    Conv3dCase{{2, 2, 3, 3, 2}, {3, 2, 1, 1, 2}, {}, {5, 4, 0, 0, 0, 0}},
                    Conv3dCase{{1, 2, 3, 3, 2}, {3, 2, 1, 1, 2}, {3, 1}, {7, 5, 0, 0, 0, 0}},
                    Conv3dCase{{1, 3, 9, 17, 24}, {32, 3, 3, 3, 24}, {}, kSame}));

TEST_P(Conv3d, MatchesReferenceInEveryStoredTypeAndOrder) {
  const auto& [x_shape, weight_shape, stride, pad] = GetParam();
  const mx::array x = random_array(x_shape, 500);
  const int out = weight_shape[0];
  const Floats bias = random_floats(out, 501);
  for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
    const mx::array dense = mx::astype(random_array(weight_shape, 502), type);
    // Checkpoints store [Cout, Cin, kd, kh, kw].
    const mx::array stored = mx::contiguous(mx::transpose(dense, {0, 4, 1, 2, 3}));
    const Floats want = want_of(x, dense, bias, stride, pad);
    for (const mx::array& weight : {dense, mx::transpose(stored, {0, 2, 3, 4, 1})}) {
      expect_close(conv3d(x, weight, to_array(bias, {out}), stride, pad), want, 1e-5, 1e-4);
    }
    expect_close(conv3d(x, dense, std::nullopt, stride, pad), want_of(x, dense, {}, stride, pad),
                 1e-5, 1e-4);
  }
}

TEST(Conv3d, ReadsEveryView) {
  const mx::array x = random_array({2, 4, 5, 6, 7}, 503);
  const mx::array weight = random_array({9, 3, 3, 3, 7}, 504);
  const mx::array bias = random_array({9}, 505);
  const Floats want = want_of(x, weight, values_of(bias), {}, kCausal);
  for (const mx::array& view : {inside_wider(x), stored_swapped(x, 1, 4), every_other(x),
                                stored_swapped(x, 0, 1), stored_backwards(x, 1)}) {
    expect_close(conv3d(view, weight, every_other(bias), {}, kCausal), want, 1e-5, 1e-4);
  }
  for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
    const mx::array w = mx::astype(weight, type);
    const Floats want_w = want_of(x, w, {}, {}, kCausal);
    for (const mx::array& view : {inside_wider(w), stored_swapped(w, 0, 4), stored_swapped(w, 1, 2),
                                  every_other(w), stored_backwards(w, 1), stored_backwards(w, 4)}) {
      expect_close(conv3d(x, view, std::nullopt, {}, kCausal), want_w, 1e-5, 1e-4);
    }
  }
}

TEST(Conv3d, ACausalOneSeesNoLaterFrame) {
  const Floats x = random_floats(5 * 4 * 4 * 3, 506);
  const mx::array weight = random_array({4, 3, 3, 3, 3}, 507);
  const auto run = [&](const Floats& values) {
    return values_of(conv3d(to_array(values, {1, 5, 4, 4, 3}), weight, std::nullopt, {}, kCausal));
  };
  const Floats before = run(x);
  const Floats after = run(with_value(x, 3 * 48, 100.0F));  // of the fourth frame
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 3 * 64, after.begin()));
  EXPECT_NE(before, after);
}

TEST(Conv3d, OneSliceIsAConv2d) {
  const mx::array x = random_array({2, 1, 7, 6, 5}, 508);
  const mx::array weight = random_array({8, 1, 3, 3, 5}, 509);
  const mx::array bias = random_array({8}, 510);
  const Floats plane =
      values_of(conv2d(mx::squeeze(x, 1), mx::squeeze(weight, 1), bias, 1, {1, 1, 1, 1}));
  expect_close(conv3d(x, weight, bias, {}, {0, 0, 1, 1, 1, 1}), plane, 1e-5, 1e-5);
}

TEST(Conv3d, KeepsNanAndInf) {
  const Floats x = random_floats(3 * 4 * 4 * 5, 511);
  const Floats w = random_floats(6 * 27 * 5, 512);
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const size_t at : {0, 100, 239}) {
      EXPECT_FALSE(all_finite(conv3d(to_array(with_value(x, at, bad), {1, 3, 4, 4, 5}),
                                     to_array(w, {6, 3, 3, 3, 5}), std::nullopt, {}, kCausal)));
    }
    for (const size_t at : {0, 404, 809}) {
      EXPECT_FALSE(all_finite(conv3d(to_array(x, {1, 3, 4, 4, 5}),
                                     to_array(with_value(w, at, bad), {6, 3, 3, 3, 5}),
                                     std::nullopt, {}, kCausal)));
    }
    const mx::array bias = to_array({0, 0, 0, 0, 0, bad}, {6});
    EXPECT_FALSE(all_finite(
        conv3d(to_array(x, {1, 3, 4, 4, 5}), to_array(w, {6, 3, 3, 3, 5}), bias, {}, kCausal)));
  }
}

TEST(Conv3d, GradientsMatchDifferences) {
  for (const Conv3dStride stride : {Conv3dStride{1, 1}, Conv3dStride{2, 1}, Conv3dStride{1, 2}}) {
    const auto op = [stride](const Arrays& in) {
      return conv3d(in[0], in[1], in[2], stride, {1, 0, 0, 1, 1, 0});
    };
    const Arrays inputs = {random_array({1, 3, 3, 2, 2}, 513), random_array({2, 2, 2, 2, 2}, 514),
                           random_array({2}, 515)};
    expect_gradients(op, inputs, {0, 1, 2});
    // The engine cannot map over the weight.
    const auto of_x = [&](const Arrays& in) { return op({in[0], inputs[1], inputs[2]}); };
    expect_fallback_agrees(of_x, {inputs[0]});
  }
}

TEST(Conv3d, TakesNoBatch) {
  EXPECT_EQ(values_of(conv3d(mx::zeros({0, 2, 4, 4, 3}), mx::zeros({5, 1, 3, 3, 3}), std::nullopt,
                             {}, {}))
                .size(),
            0U);
}

TEST(Conv3d, IsDeterministic) {
  const mx::array weight = random_array({16, 3, 3, 3, 8}, 516);
  expect_deterministic(
      [&](const Arrays& in) { return conv3d(in[0], weight, std::nullopt, {}, kCausal); },
      {random_array({1, 4, 20, 21, 8}, 517)});
}

TEST(Conv3d, RefusesMismatches) {
  const mx::array x = mx::zeros({1, 3, 4, 4, 3});
  const mx::array w = mx::zeros({5, 3, 3, 3, 3});
  const auto refused = [](const mx::array& x, const mx::array& w,
                          const std::optional<mx::array>& bias = std::nullopt,
                          const Conv3dStride& stride = {}, const Conv3dPadding& pad = {}) {
    EXPECT_THROW(conv3d(x, w, bias, stride, pad), std::invalid_argument);
  };
  EXPECT_NO_THROW(conv3d(x, w, std::nullopt, {}, {}));
  refused(x, mx::zeros({5, 3, 3, 3, 4}));
  refused(x, mx::zeros({5, 3, 3, 3}));
  refused(x, mx::zeros({5, 4, 3, 3, 3}));
  refused(x, mx::zeros({5, 0, 3, 3, 3}));
  refused(x, mx::astype(w, mx::int32));
  refused(mx::astype(x, mx::bfloat16), w);
  refused(mx::zeros({1, 0, 4, 4, 3}), w, std::nullopt, {}, {.front = 5});
  refused(x, w, mx::zeros({4}));
  refused(x, w, std::nullopt, {0, 1});
  refused(x, w, std::nullopt, {1, 0});
  refused(x, w, std::nullopt, {}, {.back = -1});
}

}  // namespace
}  // namespace mere::test
