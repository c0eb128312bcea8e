#include "kernels/conv2d.h"

#include "arrays.h"

#include "kernels/norm.h"
#include "kernels/precision.h"
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

// The error of a long sum grows with its Euclidean norm.
double tolerance(const ConvCase& c) {
  return 1e-5 * std::max(10.0, std::sqrt(9.0 * c.kernel * c.kernel * c.in));
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
                    ConvCase{1, 3, 40, 24, 48, 3, 1, kSame}, ConvCase{1, 4, 4, 70, 70, 3, 1, kSame},
                    ConvCase{2, 45, 49, 2, 5, 3, 1, kSame}, ConvCase{1, 13, 9, 130, 3, 3, 1, kSame},
                    ConvCase{1, 3, 3, 4, 130, 3, 1, {}}, ConvCase{1, 23, 41, 70, 40, 1, 1, {}},
                    ConvCase{3, 1, 9, 65, 64, 3, 1, {1, 1, 0, 0}}));

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
      expect_close(conv2d(x, weight, to_array(bias, {out}), stride, pad), want, 1e-5,
                   tolerance(GetParam()));
    }
    expect_close(conv2d(x, dense, std::nullopt, stride, pad), want_of(x, dense, {}, stride, pad),
                 1e-5, tolerance(GetParam()));
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

// What the fused forms should give, step by step.
Floats want_fused(const mx::array& x, const mx::array& weight, const Floats& bias, int stride,
                  const ConvPadding& pad, const ConvFusion& fusion) {
  mx::array changed = x;
  if (fusion.norm) {
    const ConvNorm& norm = *fusion.norm;
    changed = to_array(ref::group_norm(values_of(x), values_of(norm.weight), values_of(norm.bias),
                                       x.shape(0), x.shape(3), norm.groups, norm.eps, true),
                       x.shape());
  }
  if (fusion.upsample) changed = mx::repeat(mx::repeat(changed, 2, 1), 2, 2);
  Floats want = want_of(changed, weight, bias, stride, pad);
  if (!fusion.residual) return want;
  const Floats residual = values_of(*fusion.residual);
  for (size_t i = 0; i < want.size(); ++i) want[i] += residual.at(i);
  return want;
}

ConvNorm random_norm(int channels, int groups, uint32_t seed) {
  return {random_array({channels}, seed), random_array({channels}, seed + 1), groups, 1e-6F};
}

TEST_P(Conv2d, FusedFormsMatchReference) {
  const auto [batch, height, width, in, out, kernel, stride, pad] = GetParam();
  const mx::array x = random_array({batch, height, width, in}, 320, -2, 3);
  const mx::array weight = mx::astype(random_array({out, kernel, kernel, in}, 321), mx::bfloat16);
  const mx::array bias = random_array({out}, 322);
  const ConvNorm norm = random_norm(in, in % 2 == 0 ? 2 : 1, 323);
  for (const bool upsample : {false, true}) {
    const mx::Shape shape =
        conv2d(upsample ? upsample_nearest_2x(x) : x, weight, bias, stride, pad).shape();
    const mx::array residual = random_array(shape, 325);
    for (const ConvFusion& fusion :
         {ConvFusion{.upsample = upsample}, ConvFusion{.norm = norm, .upsample = upsample},
          ConvFusion{.upsample = upsample, .residual = residual},
          ConvFusion{.norm = norm, .upsample = upsample, .residual = residual}}) {
      expect_close(conv2d(x, weight, bias, stride, pad, fusion),
                   want_fused(x, weight, values_of(bias), stride, pad, fusion), 1e-5,
                   tolerance(GetParam()));
    }
  }
}

TEST(Conv2d, FusedFormsReadEveryView) {
  const mx::array x = random_array({2, 5, 6, 8}, 330);
  const ConvNorm norm = random_norm(8, 4, 331);
  for (const int kernel : {1, 3}) {
    const ConvPadding pad = kernel == 3 ? kSame : ConvPadding{};
    const mx::array weight = random_array({9, kernel, kernel, 8}, 333);
    const mx::array residual = random_array({2, 5, 6, 9}, 334);
    const Floats want = want_fused(x, weight, {}, 1, pad, {.norm = norm, .residual = residual});
    const auto check = [&](const mx::array& from, const ConvNorm& n, const mx::array& added) {
      expect_close(conv2d(from, weight, std::nullopt, 1, pad, {.norm = n, .residual = added}), want,
                   1e-5, 1e-4);
    };
    check(inside_wider(x), norm, every_other(residual));
    check(stored_swapped(x, 1, 3), norm, stored_backwards(residual, 1));
    check(x, {every_other(norm.weight), stored_backwards(norm.bias, 0), 4, 1e-6F},
          stored_swapped(residual, 0, 2));
  }
}

// Winograd's sums lose digits; the points are chosen so that few are lost (cpu/winograd.h).
TEST(Conv2d, IsNearlyAsExactAsAPlainSum) {
  const int channels = 256;
  const mx::array x = random_array({1, 8, 8, channels}, 340);
  const mx::array weight = random_array({8, 3, 3, channels}, 341);
  const Floats want = want_of(x, weight, {}, 1, kSame);
  const Floats got = values_of(conv2d(x, weight, std::nullopt, 1, kSame));
  EXPECT_LT(relative_error(got, want), 2e-6);
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

TEST(Conv2d, FusedFormsKeepNanAndInf) {
  const Floats x = random_floats(5 * 5 * 16, 350);
  const mx::array weight = random_array({18, 3, 3, 16}, 351);
  const ConvNorm norm = random_norm(16, 4, 352);
  const Floats residual = random_floats(5 * 5 * 18, 354);
  const auto run = [&](const Floats& from, const Floats& added) {
    return conv2d(to_array(from, {1, 5, 5, 16}), weight, std::nullopt, 1, kSame,
                  {.norm = norm, .residual = to_array(added, {1, 5, 5, 18})});
  };
  EXPECT_TRUE(all_finite(run(x, residual)));
  for (const float bad : {kNan, kInf, -kInf, 1e30F}) {
    EXPECT_FALSE(all_finite(run(with_value(x, 211, bad), residual)));
    if (bad == 1e30F) continue;
    EXPECT_FALSE(all_finite(run(x, with_value(residual, 449, bad))));
  }
}

TEST(Conv2d, FusedGradientsMatchDifferences) {
  for (const int kernel : {1, 3}) {
    const ConvPadding pad = kernel == 3 ? kSame : ConvPadding{};
    const auto op = [&](const Arrays& in) {
      return conv2d(
          in[0], in[1], in[2], 1, pad,
          {.norm = ConvNorm{in[3], in[4], 2, 1e-3F}, .upsample = true, .residual = in[5]});
    };
    const Arrays inputs = {
        random_array({1, 2, 2, 4}, 360), random_array({2, kernel, kernel, 4}, 361),
        random_array({2}, 362),          random_array({4}, 363),
        random_array({4}, 364),          random_array({1, 4, 4, 2}, 365)};
    expect_gradients(op, inputs, {0, 1, 2, 3, 4, 5}, 1e-2);
    const auto of_x = [&](const Arrays& in) {
      return op({in[0], inputs[1], inputs[2], inputs[3], inputs[4], in[1]});
    };
    expect_fallback_agrees(of_x, {inputs[0], inputs[5]});
  }
}

// A part of a picture convolved with the moments of all of it is a part of the picture convolved.
TEST(Conv2d, NormTakesMomentsOfALargerPicture) {
  const mx::array x = random_array({2, 12, 6, 8}, 370, -2, 3);
  const mx::array weight = random_array({5, 3, 3, 8}, 371);
  for (const bool pointwise : {false, true}) {
    const mx::array w = pointwise ? mx::slice(weight, {0, 1, 1, 0}, {5, 2, 2, 8}) : weight;
    const ConvPadding pad = pointwise ? ConvPadding{} : kSame;
    ConvNorm norm = random_norm(8, 4, 372);
    const mx::array whole = conv2d(x, w, std::nullopt, 1, pad, {.norm = norm});
    norm.moments = group_moments(x, 4, {0, 0, 12, 6});
    const mx::array part = mx::slice(x, {0, 3, 0, 0}, {2, 9, 6, 8});
    const mx::array got = conv2d(part, w, std::nullopt, 1, pad, {.norm = norm});
    expect_close(mx::slice(got, {0, 1, 0, 0}, {2, 5, 6, 5}),
                 values_of(mx::slice(whole, {0, 4, 0, 0}, {2, 8, 6, 5})), 1e-5, 1e-4);
  }
}

TEST(Conv2d, GradientsReachGivenMoments) {
  const auto op = [](const Arrays& in) {
    return conv2d(in[0], in[1], std::nullopt, 1, kSame,
                  {.norm = ConvNorm{in[2], in[3], 2, 1e-3F, in[4]}, .residual = in[5]});
  };
  const Arrays inputs = {random_array({1, 2, 2, 4}, 374),
                         random_array({2, 3, 3, 4}, 375),
                         random_array({4}, 376),
                         random_array({4}, 377),
                         random_array({1, 2, 2}, 378, 0.5F, 1.0F),
                         random_array({1, 2, 2, 2}, 379)};
  expect_gradients(op, inputs, {0, 1, 2, 3, 4, 5}, 1e-2);
  const auto of_x = [&](const Arrays& in) {
    return op({in[0], inputs[1], inputs[2], inputs[3], in[1], inputs[5]});
  };
  expect_fallback_agrees(of_x, {inputs[0], inputs[4]});
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
  const auto refuses = [&](const ConvFusion& fusion) {
    EXPECT_THROW(conv2d(x, w, std::nullopt, 1, {}, fusion), std::invalid_argument);
  };
  const mx::array one = mx::ones({3});
  refuses({.norm = ConvNorm{one, one, 2, 1e-6F}});
  refuses({.norm = ConvNorm{one, one, 0, 1e-6F}});
  refuses({.norm = ConvNorm{one, mx::ones({2}), 3, 1e-6F}});
  refuses({.norm = ConvNorm{mx::astype(one, mx::float16), one, 3, 1e-6F}});
  refuses({.norm = ConvNorm{one, one, 3, 1e-6F, mx::zeros({1, 2, 2})}});
  refuses({.norm = ConvNorm{one, one, 3, 1e-6F, mx::zeros({1, 3, 2}, mx::float16)}});
  refuses({.residual = mx::zeros({1, 2, 2, 3})});
  refuses({.upsample = true, .residual = mx::zeros({1, 2, 2, 5})});
  refuses({.residual = mx::zeros({1, 2, 2, 5}, mx::float16)});
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

// bfloat16 products where the processor has them.
TEST(Conv2dAuto, StaysNearTheExactOne) {
  const mx::array x = random_array({2, 9, 13, 32}, 190);
  const mx::array weight = mx::astype(random_array({24, 3, 3, 32}, 191), mx::bfloat16);
  const mx::array bias = random_array({24}, 192);
  const ConvNorm norm{random_array({32}, 193), random_array({32}, 194), 8, 1e-6F};
  for (const bool upsample : {false, true}) {
    const int factor = upsample ? 2 : 1;
    const ConvFusion fusion{norm, upsample, random_array({2, 9 * factor, 13 * factor, 24}, 195)};
    const mx::array want = conv2d(x, weight, bias, 1, {1, 1, 1, 1}, fusion);
    mx::eval(want);
    set_precision(Precision::kAuto);
    const mx::array got = conv2d(x, weight, bias, 1, {1, 1, 1, 1}, fusion);
    mx::eval(got);
    set_precision(Precision::kFloat32);
    EXPECT_LT(relative_error(got, values_of(want)), 1e-2);
  }
}

}  // namespace
}  // namespace mere::test
