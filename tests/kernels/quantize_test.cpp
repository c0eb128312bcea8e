#include "kernels/quantize.h"

#include "arrays.h"
#include "quantized.h"

#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

class Quantize : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Bits, Quantize, testing::ValuesIn(kBitWidths),
                         testing::PrintToStringParamName());

std::vector<uint32_t> unpacked(const LinearWeight& w) {
  LinearWeight codes = w;
  codes.scales = mx::ones({static_cast<int>(w.out), static_cast<int>(w.in) / w.group_size});
  codes.biases = mx::zeros(codes.scales->shape());
  const Floats values = dequantized(codes);
  return {values.begin(), values.end()};
}

TEST_P(Quantize, GivesWhatTheEngineGives) {
  for (const int group_size : kGroups) {
    for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
      for (const float spread : {1.0F, 1e-3F, 1e-9F, 1e4F}) {
        SCOPED_TRACE(group_size);
        const mx::array dense = mx::astype(random_array({19, 256}, 440, -spread, spread), type);
        const LinearWeight w = quantize(dense, GetParam(), group_size);
        const Arrays engine = mx::quantize(dense, group_size, GetParam());
        EXPECT_EQ(words_of(w.weight), words_of(engine[0]));
        EXPECT_EQ(values_of(*w.scales), values_of(engine[1]));
        EXPECT_EQ(values_of(*w.biases), values_of(engine[2]));
        EXPECT_EQ(w.scales->dtype(), type);
        EXPECT_EQ(w.weight.shape(), engine[0].shape());
        EXPECT_EQ(w.scales->shape(), engine[1].shape());
        const ref::Affine want = ref::quantize(values_of(dense), GetParam(), group_size);
        EXPECT_EQ(unpacked(w), want.codes);
        if (type != mx::float32) continue;
        EXPECT_EQ(values_of(*w.scales), want.scales);
        EXPECT_EQ(values_of(*w.biases), want.biases);
      }
    }
  }
}

TEST_P(Quantize, TakesSpecialGroups) {
  Floats x(8 * 32, 0.0F);                          // all zeros
  for (int i = 32; i < 64; ++i) x[i] = 0.75F;      // all equal
  for (int i = 64; i < 96; ++i) x[i] = -3.0F;      //
  for (int i = 96; i < 128; ++i) x[i] = 1.0F + i;  // no zero inside
  for (int i = 128; i < 160; ++i) x[i] = i % 2 ? 2.0F : -2.0F;
  for (int i = 160; i < 192; ++i) x[i] = i % 2 ? 3e38F : -3e38F;  // the range overflows
  for (int i = 192; i < 224; ++i) x[i] = 1e-40F * i;
  x[255] = -1.0F;
  const mx::array dense = to_array(x, {2, 128});
  const LinearWeight w = quantize(dense, GetParam(), 32);
  const Arrays engine = mx::quantize(dense, 32, GetParam());
  EXPECT_EQ(words_of(w.weight), words_of(engine[0]));
  EXPECT_EQ(values_of(*w.scales), values_of(engine[1]));
  EXPECT_EQ(values_of(*w.biases), values_of(engine[2]));
}

TEST_P(Quantize, ReadsEveryView) {
  const mx::array dense = random_array({37, 128}, 441);
  const LinearWeight want = quantize(dense, GetParam(), 64);
  for (const mx::array& view : {inside_wider(dense), stored_swapped(dense, 0, 1),
                                every_other(dense), stored_backwards(dense, 0)}) {
    const LinearWeight got = quantize(view, GetParam(), 64);
    EXPECT_EQ(words_of(got.weight), words_of(want.weight));
    EXPECT_EQ(values_of(*got.scales), values_of(*want.scales));
    EXPECT_EQ(values_of(*got.biases), values_of(*want.biases));
  }
}

TEST_P(Quantize, KeepsNanAndInf) {
  const Floats x = random_floats(2 * 128, 442);
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const size_t at : {0, 31, 64, 127}) {
      const LinearWeight w = quantize(to_array(with_value(x, at, bad), {2, 128}), GetParam(), 32);
      const Floats again = values_of(dequantize(w));
      for (size_t i = 0; i < again.size(); ++i) {
        EXPECT_EQ(std::isnan(again[i]), i / 32 == at / 32) << i;
      }
    }
  }
}

TEST_P(Quantize, DequantizesToCodeTimesScalePlusBias) {
  for (const int group_size : kGroups) {
    for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
      SCOPED_TRACE(group_size);
      LinearWeight w = random_quantized(21, 384, GetParam(), group_size, type);
      const Floats want = dequantized(w);
      expect_close(dequantize(w), want, 1e-6, 1e-6);
      expect_close(
          dequantize(w),
          values_of(mx::dequantize(w.weight, mx::astype(*w.scales, mx::float32),
                                   mx::astype(*w.biases, mx::float32), group_size, GetParam())),
          1e-6, 1e-6);
      w.weight = inside_wider(w.weight);
      w.scales = stored_swapped(*w.scales, 0, 1);
      w.biases = every_other(*w.biases);
      expect_close(dequantize(w), want, 1e-6, 1e-6);
    }
  }
}

TEST_P(Quantize, ErrorIsAtMostAStep) {
  const mx::array dense = random_array({5, 256}, 443);
  const LinearWeight w = quantize(dense, GetParam(), 64);
  const Floats again = values_of(dequantize(w));
  const Floats scales = values_of(*w.scales);
  const Floats x = values_of(dense);
  // Half a step by rounding, and as much again at the end that moves so that 0 is a code.
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::fabs(again[i] - x[i]), 1.01F * std::fabs(scales[i / 64])) << i;
  }
}

TEST_P(Quantize, FallbacksAgree) {
  const auto weight_op = [&](const Arrays& in) {
    return mx::astype(quantize(in[0], GetParam(), 32).weight, mx::float32);
  };
  const auto scales_op = [&](const Arrays& in) { return *quantize(in[0], GetParam(), 32).scales; };
  const Arrays dense = {random_array({3, 64}, 444)};
  expect_fallback_agrees(weight_op, dense, 0, 0);
  expect_fallback_agrees(scales_op, dense, 0, 0);
  const LinearWeight w = random_quantized(3, 64, GetParam(), 32, mx::float32);
  const auto back = [&](const Arrays& in) {
    LinearWeight changed = w;
    changed.scales = in[0];
    changed.biases = in[1];
    return dequantize(changed);
  };
  expect_gradients(back, {*w.scales, *w.biases}, {0, 1}, 1e-2);
}

TEST(Quantize, ADenseWeightIsWidened) {
  const mx::array dense = mx::astype(random_array({3, 5}, 445), mx::bfloat16);
  const mx::array wide = dequantize(dense_weight(dense));
  EXPECT_EQ(wide.dtype(), mx::float32);
  EXPECT_EQ(values_of(wide), values_of(dense));
}

TEST(Quantize, IsDeterministic) {
  expect_deterministic([](const Arrays& in) { return dequantize(quantize(in[0], 4, 64)); },
                       {random_array({300, 512}, 446)});
}

TEST(Quantize, RefusesMismatches) {
  const mx::array dense = mx::zeros({2, 128});
  for (const int bits : {-1, 0, 7, 9, 32}) {
    EXPECT_THROW(quantize(dense, bits, 32), std::invalid_argument);
  }
  for (const int group : {-32, 0, 1, 16, 96, 256}) {
    EXPECT_THROW(quantize(dense, 4, group), std::invalid_argument);
  }
  EXPECT_THROW(quantize(mx::zeros({2, 96}), 4, 64), std::invalid_argument);
  EXPECT_THROW(quantize(mx::zeros({128}), 4, 64), std::invalid_argument);
  EXPECT_THROW(quantize(mx::zeros({0, 128}), 4, 64), std::invalid_argument);
  EXPECT_THROW(quantize(mx::zeros({2, 128}, mx::int32), 4, 64), std::invalid_argument);
  LinearWeight w = random_quantized(3, 64, 4, 32, mx::float32);
  w.biases.reset();
  EXPECT_THROW(dequantize(w), std::invalid_argument);
  w = random_quantized(3, 64, 4, 32, mx::float32);
  w.in = 128;
  EXPECT_THROW(dequantize(w), std::invalid_argument);
  w = random_quantized(3, 64, 4, 32, mx::float32);
  w.scales = mx::zeros({3, 3});
  EXPECT_THROW(dequantize(w), std::invalid_argument);
}

}  // namespace
}  // namespace mere::test
