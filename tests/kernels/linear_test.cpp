#include "kernels/linear.h"

#include <random>

#include "arrays.h"
#include "quantized.h"

#include "kernels/activation.h"
#include "kernels/cpu/bf16_panels.h"
#include "kernels/precision.h"
#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

constexpr double kLimit = 2e-5;

Floats want_of(const mx::array& x, const mx::array& weight, const Floats& bias = {}) {
  const int64_t in = weight.shape(1);
  return ref::linear(values_of(x), values_of(weight), bias, static_cast<int64_t>(x.size()) / in, in,
                     weight.shape(0));
}

struct LinearCase {
  int rows, in, out;
};
void PrintTo(const LinearCase& c, std::ostream* os) {
  *os << c.rows << "x" << c.in << "->" << c.out;
}

class Linear : public testing::TestWithParam<LinearCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Linear,
                         testing::Values(LinearCase{1, 1, 1}, LinearCase{1, 64, 1},
                                         LinearCase{3, 7, 5}, LinearCase{1, 33, 65},
                                         LinearCase{17, 31, 29}, LinearCase{5, 128, 17},
                                         LinearCase{130, 65, 33},
                                         LinearCase{3, 4097, 300},  // several panels
                                         LinearCase{2, 40000, 40}));

TEST_P(Linear, MatchesReferenceInEveryStoredType) {
  const auto [rows, in, out] = GetParam();
  const mx::array x = random_array({rows, in}, 100);
  const Floats bias = random_floats(out, 101);
  for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
    const mx::array weight = mx::astype(random_array({out, in}, 102), type);
    SCOPED_TRACE(type == mx::float32 ? "f32" : type == mx::bfloat16 ? "bf16" : "f16");
    const double limit = kLimit * std::sqrt(in);
    expect_close(linear(x, dense_weight(weight)), want_of(x, weight), kLimit, limit);
    expect_close(linear(x, dense_weight(weight), to_array(bias, {out})), want_of(x, weight, bias),
                 kLimit, limit);
  }
}

// What follows the product, in every way a product is computed, against the separate operations.
TEST(Linear, EpiloguesMatchSeparateOperations) {
  const mx::array bias = random_array({70}, 201);
  const mx::array gates = random_array({2, 1, 70}, 202);
  for (const int length : {1, 3, 50}) {
    const mx::array x = random_array({2, length, 192}, 203);
    const mx::array residual = stored_swapped(random_array({2, length, 70}, 204), 0, 1);
    const mx::array w = random_array({70, 192}, 205);
    for (const LinearWeight& weight : {dense_weight(w), dense_weight(mx::astype(w, mx::bfloat16)),
                                       random_quantized(70, 192, 4, 64, mx::bfloat16)}) {
      const mx::array y = linear(x, weight, bias);
      const auto check = [&](const Epilogue& epilogue, const mx::array& want) {
        expect_close(linear(x, weight, bias, epilogue), values_of(want), 1e-6, 1e-6);
      };
      check({.function = Epilogue::kSilu}, silu(y));
      check({.function = Epilogue::kGeluErf}, gelu(y, Gelu::kErf));
      check({.function = Epilogue::kGeluTanh}, gelu(y, Gelu::kTanh));
      check({.residual = residual, .gate = gates}, gated_residual(residual, gates, y));
      const mx::array gate = mx::slice(gates, {1, 0, 0}, {2, 1, 70});
      check({.function = Epilogue::kSilu, .residual = residual, .gate = gate},
            gated_residual(residual, gate, silu(y)));
    }
  }
  const mx::array x = random_array({1, 2, 192}, 206);
  const LinearWeight weight = dense_weight(random_array({70, 192}, 207));
  EXPECT_THROW(linear(x, weight, {}, {.gate = gates}), std::invalid_argument);
  EXPECT_THROW(linear(x, weight, {}, {.residual = x, .gate = gates}), std::invalid_argument);
}

// The columns of the input may lie in several arrays, gated ones among them.
TEST(Linear, PartsMatchTheJoinedInput) {
  for (const Precision precision : {Precision::kFloat32, Precision::kAuto}) {
    for (const bool plain_tiles : {false, true}) {
      set_precision(precision);
      cpu::use_plain_bf16_tiles(plain_tiles);
      for (const int rows : {1, 5, 40}) {
        SCOPED_TRACE(rows);
        const auto part = [&](int width, uint32_t seed) {
          return random_array({2, rows, width}, seed);
        };
        const std::vector<InputPart> parts = {{part(33, 300)},
                                              {part(2 * 190, 301), true},
                                              {inside_wider(part(32, 302))},
                                              {part(2, 303), true}};
        for (const mx::Dtype type : {mx::float32, mx::bfloat16}) {
          const LinearWeight w = dense_weight(mx::astype(random_array({50, 256}, 304), type));
          expect_close(linear(parts, w), values_of(linear(joined(parts), w)), 0, 0);
        }
        const auto quantized = mx::quantize(random_array({64, 256}, 305), 64, 4);
        const LinearWeight w{quantized[0], quantized[1], quantized[2], 4, 64, 64, 256};
        expect_close(linear(parts, w), values_of(linear(joined(parts), w)), 0, 0);
      }
    }
  }
  set_precision(Precision::kFloat32);
  cpu::use_plain_bf16_tiles(false);
  const std::vector<InputPart> unequal = {{random_array({2, 3, 4}, 306)},
                                          {random_array({2, 2, 4}, 307)}};
  const LinearWeight w = dense_weight(random_array({5, 8}, 308));
  EXPECT_THROW(linear(unequal, w), std::invalid_argument);
  EXPECT_THROW(linear({{random_array({2, 5}, 309), true}}, w), std::invalid_argument);
  EXPECT_THROW(linear(std::vector<InputPart>{}, w), std::invalid_argument);
}

TEST(Linear, KeepsLeadingAxes) {
  const mx::array weight = random_array({5, 7}, 103);
  const mx::array x = random_array({2, 3, 4, 7}, 104);
  const mx::array y = linear(x, dense_weight(weight));
  EXPECT_EQ(y.shape(), (mx::Shape{2, 3, 4, 5}));
  expect_close(y, want_of(x, weight), kLimit, kLimit);
  expect_close(
      linear(mx::reshape(mx::slice(x, {0, 0, 0, 0}, {1, 1, 1, 7}), {7}), dense_weight(weight)),
      want_of(mx::slice(x, {0, 0, 0, 0}, {1, 1, 1, 7}), weight), kLimit, kLimit);
  EXPECT_EQ(linear(mx::zeros({2, 0, 7}), dense_weight(weight)).shape(), (mx::Shape{2, 0, 5}));
}

TEST(Linear, ReadsEveryViewOfTheInput) {
  const mx::array weight = random_array({9, 37}, 105);
  const mx::array x = random_array({2, 5, 37}, 106);
  const Floats want = want_of(x, weight);
  const auto run = [&](const mx::array& view) {
    expect_close(linear(view, dense_weight(weight)), want, kLimit, kLimit);
  };
  run(inside_wider(x));
  run(stored_swapped(x, 0, 1));
  run(stored_swapped(x, 1, 2));
  run(every_other(x));
  run(stored_backwards(x, 1));
  run(stored_backwards(x, 2));
  const mx::array repeated = mx::broadcast_to(random_array({1, 1, 37}, 107), {2, 5, 37});
  expect_close(linear(repeated, dense_weight(weight)), want_of(repeated, weight), kLimit, kLimit);
}

TEST(Linear, ReadsEveryViewOfTheWeight) {
  const mx::array x = random_array({4, 37}, 108);
  for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
    const mx::array weight = mx::astype(random_array({21, 37}, 109), type);
    const Floats want = want_of(x, weight);
    const auto run = [&](const mx::array& view) {
      expect_close(linear(x, dense_weight(view)), want, kLimit, kLimit);
    };
    run(inside_wider(weight));
    run(stored_swapped(weight, 0, 1));
    run(every_other(weight));
    run(stored_backwards(weight, 0));
    run(stored_backwards(weight, 1));
    // Rows of a taller matrix: one of the parts of a fused projection.
    const mx::array taller = mx::concatenate({weight, weight, weight}, 0);
    run(mx::slice(taller, {21, 0}, {42, 37}));
    const mx::array row = mx::broadcast_to(mx::slice(weight, {0, 0}, {1, 37}), {21, 37});
    expect_close(linear(x, dense_weight(row)), want_of(x, row), kLimit, kLimit);
  }
}

TEST(Linear, ReadsEveryViewOfTheBias) {
  const mx::array x = random_array({4, 37}, 110);
  const mx::array weight = random_array({21, 37}, 111);
  const mx::array bias = random_array({21}, 112);
  const Floats want = want_of(x, weight, values_of(bias));
  expect_close(linear(x, dense_weight(weight), every_other(bias)), want, kLimit, kLimit);
  expect_close(linear(x, dense_weight(weight), stored_backwards(bias, 0)), want, kLimit, kLimit);
  expect_close(linear(x, dense_weight(weight), mx::broadcast_to(mx::array(0.5F), {21})),
               want_of(x, weight, Floats(21, 0.5F)), kLimit, kLimit);
}

Floats want_of(const mx::array& x, const LinearWeight& w, const Floats& bias = {}) {
  return ref::linear(values_of(x), dequantized(w), bias, static_cast<int64_t>(x.size()) / w.in,
                     w.in, w.out);
}

class QuantizedLinear : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Bits, QuantizedLinear, testing::Values(1, 2, 3, 4, 5, 6, 8),
                         testing::PrintToStringParamName());

TEST_P(QuantizedLinear, MatchesReference) {
  for (const int group_size : kGroups) {
    for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
      SCOPED_TRACE(group_size);
      const LinearWeight w = random_quantized(37, 384, GetParam(), group_size, type);
      const mx::array x = random_array({2, 3, 384}, 116);
      const mx::array bias = random_array({37}, 117);
      expect_close(linear(x, w), want_of(x, w), 1e-5, 1e-3);
      expect_close(linear(x, w, bias), want_of(x, w, values_of(bias)), 1e-5, 1e-3);
    }
  }
}

TEST_P(QuantizedLinear, ReadsRowsOfATallerMatrix) {
  const LinearWeight w = random_quantized(37, 256, GetParam(), 64, mx::bfloat16);
  LinearWeight part = w;
  const auto rows = [](const mx::array& a) { return mx::slice(a, {11, 0}, {30, a.shape(1)}); };
  part.weight = rows(w.weight);
  part.scales = rows(*w.scales);
  part.biases = stored_swapped(rows(*w.biases), 0, 1);
  part.out = 19;
  const mx::array x = random_array({4, 256}, 118);
  expect_close(linear(x, part), want_of(x, part), 1e-5, 1e-3);
}

TEST_P(QuantizedLinear, ReadsWhatTheEngineQuantizes) {
  const int bits = GetParam();
  for (const int group_size : kGroups) {
    SCOPED_TRACE(group_size);
    const mx::array dense = random_array({21, 256}, 119);
    const Arrays parts = mx::quantize(dense, group_size, bits);
    const LinearWeight w{parts[0], parts[1], parts[2], bits, group_size, 21, 256};
    const mx::array x = random_array({3, 256}, 120);
    const Floats engine = values_of(mx::dequantize(parts[0], parts[1], parts[2], group_size, bits));
    expect_close(dequantized(w), engine, 1e-6, 1e-6);
    expect_close(linear(x, w), ref::linear(values_of(x), engine, {}, 3, 256, 21), 1e-5, 1e-4);
  }
}

TEST_P(QuantizedLinear, GradientOfTheInputMatchesDifferences) {
  for (const int group_size : kGroups) {
    SCOPED_TRACE(group_size);
    const LinearWeight w = random_quantized(3, 128, GetParam(), group_size, mx::bfloat16);
    const auto op = [&](const Arrays& in) { return linear(in[0], w); };
    const Arrays inputs = {random_array({1, 128}, 121)};
    expect_gradients(op, inputs, {0}, 5e-3);
    expect_fallback_agrees(op, inputs, 1e-4, 1e-3);
  }
}

TEST(Linear, GradientsMatchDifferences) {
  const auto op = [](const Arrays& in) { return linear(in[0], dense_weight(in[1]), in[2]); };
  const Arrays inputs = {random_array({2, 2, 5}, 122), random_array({3, 5}, 123),
                         random_array({3}, 124)};
  expect_gradients(op, inputs, {0, 1, 2});
  expect_gradients(op, inputs, {1});
  expect_fallback_agrees(op, inputs);
  const auto followed = [](const Arrays& in) {
    return linear(in[0], dense_weight(in[1]), in[2],
                  {.function = Epilogue::kGeluTanh, .residual = in[3], .gate = in[4]});
  };
  Arrays with_gate = inputs;
  with_gate.push_back(random_array({2, 2, 3}, 125));
  with_gate.push_back(random_array({2, 1, 3}, 126));
  expect_gradients(followed, with_gate, {0, 1, 2, 3, 4});
  expect_fallback_agrees(followed, with_gate);
  const mx::array half = mx::astype(inputs[1], mx::bfloat16);
  const auto half_op = [&](const Arrays& in) { return linear(in[0], dense_weight(half)); };
  expect_gradients(half_op, {inputs[0]}, {0});
}

TEST(Linear, KeepsNanAndInf) {
  const Floats x = random_floats(3 * 33, 125);
  const Floats w = random_floats(5 * 33, 126);
  for (const float bad : {kNan, kInf, -kInf}) {
    EXPECT_FALSE(all_finite(
        linear(to_array(with_value(x, 40, bad), {3, 33}), dense_weight(to_array(w, {5, 33})))));
    for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
      for (const size_t at : {0, 40, 164}) {
        const mx::array weight = mx::astype(to_array(with_value(w, at, bad), {5, 33}), type);
        EXPECT_FALSE(all_finite(linear(to_array(x, {3, 33}), dense_weight(weight))));
      }
    }
    EXPECT_FALSE(all_finite(linear(to_array(x, {3, 33}), dense_weight(to_array(w, {5, 33})),
                                   to_array({0, 0, bad, 0, 0}, {5}))));
  }
  // Overflow of the sum is an Inf, too.
  EXPECT_FALSE(
      all_finite(linear(mx::full({1, 33}, 1e20F), dense_weight(mx::full({5, 33}, 1e20F)))));
}

TEST(Linear, IsDeterministic) {
  for (const mx::Dtype type : {mx::float32, mx::bfloat16}) {
    const LinearWeight w = dense_weight(mx::astype(random_array({300, 2000}, 127), type));
    expect_deterministic([&](const Arrays& in) { return linear(in[0], w); },
                         {random_array({70, 2000}, 128)});
  }
}

TEST(Linear, RefusesMismatches) {
  const mx::array x = mx::zeros({2, 64});
  const mx::array words = mx::zeros({3, 8}, mx::uint32);
  const mx::array groups = mx::zeros({3, 1});
  const LinearWeight good{words, groups, groups, 4, 64, 3, 64};
  EXPECT_NO_THROW(linear(x, good));
  const auto refused = [&](const auto& change) {
    LinearWeight bad = good;
    change(bad);
    EXPECT_THROW(linear(x, bad), std::invalid_argument);
  };
  refused([](LinearWeight& w) { w.bits = 7; });
  refused([](LinearWeight& w) { w.bits = 32; });
  refused([](LinearWeight& w) { w.bits = -4; });
  refused([](LinearWeight& w) { w.group_size = 0; });
  refused([](LinearWeight& w) { w.group_size = 128; });
  refused([](LinearWeight& w) { w.scales.reset(); });
  refused([](LinearWeight& w) { w.biases = mx::zeros({3, 2}); });
  refused([](LinearWeight& w) { w.weight = mx::zeros({3, 8}, mx::int32); });
  refused([](LinearWeight& w) { w.weight = mx::zeros({3, 7}, mx::uint32); });
  refused([](LinearWeight& w) { w.out = 4; });
  EXPECT_THROW(dense_weight(mx::zeros({3})), std::invalid_argument);
  const LinearWeight dense = dense_weight(mx::zeros({3, 64}));
  EXPECT_THROW(linear(mx::zeros({2, 63}), dense), std::invalid_argument);
  EXPECT_THROW(linear(mx::array(1.0F), dense), std::invalid_argument);
  EXPECT_THROW(linear(mx::zeros({2, 64}, mx::bfloat16), dense), std::invalid_argument);
  EXPECT_THROW(linear(x, dense, mx::zeros({4})), std::invalid_argument);
  EXPECT_THROW(linear(x, dense_weight(mx::zeros({3, 64}, mx::int32))), std::invalid_argument);
  EXPECT_THROW(linear(mx::zeros({2, 0}), dense_weight(mx::zeros({3, 0}))), std::invalid_argument);
}

// The fast products, compared with exact ones by their error relative to the result.
class LinearAuto : public testing::Test {
 protected:
  void SetUp() override { set_precision(Precision::kAuto); }
  void TearDown() override { set_precision(Precision::kFloat32); }
};

double auto_limit() {
  const std::string type = compute_type();
  return type == "bfloat16" ? 8e-3 : type == "int16" ? 3e-4 : 2e-6;
}

TEST_F(LinearAuto, KeepsItsPromiseForBfloat16) {
  for (const auto [rows, in, out] : {LinearCase{1, 128, 40}, LinearCase{8, 320, 33},
                                     LinearCase{9, 64, 17}, LinearCase{130, 1280, 99}}) {
    const mx::array x = random_array({rows, in}, 130);
    const mx::array weight = mx::astype(random_array({out, in}, 131), mx::bfloat16);
    const Floats bias = random_floats(out, 132);
    EXPECT_LT(relative_error(linear(x, dense_weight(weight), to_array(bias, {out})),
                             want_of(x, weight, bias)),
              auto_limit());
  }
}

TEST_F(LinearAuto, LeavesFloat32Exact) {
  const mx::array x = random_array({20, 128}, 133);
  const mx::array weight = random_array({30, 128}, 134);
  EXPECT_LT(relative_error(linear(x, dense_weight(weight)), want_of(x, weight)), 2e-6);
}

TEST_F(LinearAuto, KeepsItsPromiseForCodes) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const int rows : {1, 7, 9, 70}) {
        const mx::array x = random_array({rows, 256}, 135);
        const auto parts = mx::quantize(random_array({50, 256}, 136), group, bits);
        LinearWeight weight{parts[0], parts[1], parts[2], bits, group, 50, 256};
        const mx::array wide = mx::dequantize(parts[0], parts[1], parts[2], group, bits);
        EXPECT_LT(relative_error(linear(x, weight), want_of(x, wide)), auto_limit())
            << bits << " bits, group " << group << ", rows " << rows;
      }
    }
  }
}

TEST_F(LinearAuto, WhatIsNotFiniteStaysSeen) {
  for (const int rows : {1, 12}) {
    Floats values = random_floats(rows * 128, 137);
    values[5] = kInf;
    const mx::array weight = mx::astype(random_array({10, 128}, 138), mx::bfloat16);
    const Floats y = values_of(linear(to_array(values, {rows, 128}), dense_weight(weight)));
    for (int i = 0; i < rows * 10; ++i) EXPECT_EQ(std::isfinite(y[i]), i >= 10) << i;
  }
}

}  // namespace
}  // namespace mere::test
