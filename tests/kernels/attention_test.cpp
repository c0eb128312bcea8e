#include "kernels/attention.h"

#include <cmath>

#include "arrays.h"

#include "kernels/cpu/bf16_panels.h"
#include "kernels/precision.h"
#include "kernels/ref/reference.h"

namespace mere::test {
namespace {

struct AttentionCase {
  int batch, heads, kv_heads, queries, keys, depth;
};
void PrintTo(const AttentionCase& c, std::ostream* os) {
  *os << c.batch << "x" << c.heads << "/" << c.kv_heads << "x" << c.queries << "x" << c.keys << "x"
      << c.depth;
}

Floats want_of(const mx::array& q, const mx::array& k, const mx::array& v, float scale,
               bool causal = false, const std::vector<int32_t>& valid = {}) {
  return ref::attention(values_of(q), values_of(k), values_of(v), q.shape(0), q.shape(1),
                        k.shape(1), q.shape(2), k.shape(2), q.shape(3), scale, causal, valid);
}

AttentionMask mask_of(bool causal, const std::vector<int32_t>& valid = {}) {
  AttentionMask mask;
  mask.causal = causal;
  if (!valid.empty()) {
    mask.valid_keys = mx::array(valid.data(), {static_cast<int>(valid.size())}, mx::int32);
  }
  return mask;
}

class Attention : public testing::TestWithParam<AttentionCase> {
 protected:
  const AttentionCase c_ = GetParam();
  const float scale_ = 1.0F / std::sqrt(static_cast<float>(c_.depth));
  const mx::array q_ = random_array({c_.batch, c_.heads, c_.queries, c_.depth}, 200, -2, 2);
  const mx::array k_ = random_array({c_.batch, c_.kv_heads, c_.keys, c_.depth}, 201, -2, 2);
  const mx::array v_ = random_array({c_.batch, c_.kv_heads, c_.keys, c_.depth}, 202, -2, 2);
};
// Tiles are 64 queries and 256 keys.
INSTANTIATE_TEST_SUITE_P(
    Shapes, Attention,
    testing::Values(AttentionCase{1, 1, 1, 1, 1, 1}, AttentionCase{1, 1, 1, 1, 300, 7},
                    AttentionCase{2, 4, 2, 5, 5, 3}, AttentionCase{1, 6, 1, 17, 17, 16},
                    AttentionCase{2, 3, 3, 63, 63, 33}, AttentionCase{1, 2, 2, 64, 64, 64},
                    AttentionCase{2, 4, 2, 65, 65, 65}, AttentionCase{1, 2, 1, 130, 515, 40},
                    AttentionCase{1, 2, 1, 300, 300, 20}, AttentionCase{1, 1, 1, 257, 257, 255},
                    AttentionCase{1, 1, 1, 70, 1025, 256}));

TEST_P(Attention, MatchesReference) {
  expect_close(attention(q_, k_, v_, scale_), want_of(q_, k_, v_, scale_), 1e-5, 1e-5);
  if (c_.queries != c_.keys) return;
  expect_close(attention(q_, k_, v_, scale_, mask_of(true)), want_of(q_, k_, v_, scale_, true),
               1e-5, 1e-5);
}

TEST_P(Attention, HonoursValidKeys) {
  for (const int first : {0, 1, c_.keys / 2, c_.keys - 1, c_.keys}) {
    std::vector<int32_t> valid = {first, c_.keys};
    valid.resize(static_cast<size_t>(c_.batch));
    SCOPED_TRACE(first);
    expect_close(attention(q_, k_, v_, scale_, mask_of(false, valid)),
                 want_of(q_, k_, v_, scale_, false, valid), 1e-5, 1e-5);
    if (c_.queries != c_.keys) continue;
    expect_close(attention(q_, k_, v_, scale_, mask_of(true, valid)),
                 want_of(q_, k_, v_, scale_, true, valid), 1e-5, 1e-5);
  }
}

// Products of bfloat16 numbers, on the processor's tiles and on plain ones.
class AttentionBf16 : public testing::TestWithParam<AttentionCase> {
 protected:
  void SetUp() override { set_precision(Precision::kAuto); }
  void TearDown() override {
    set_precision(Precision::kFloat32);
    cpu::use_plain_bf16_tiles(false);
  }
  void expect_like_reference(bool causal, const std::vector<int32_t>& valid) const {
    const auto [batch, heads, kv_heads, queries, keys, depth] = GetParam();
    const float scale = 1.0F / std::sqrt(static_cast<float>(depth));
    const mx::array q = random_array({batch, heads, queries, depth}, 220, -2, 2);
    const mx::array k = random_array({batch, kv_heads, keys, depth}, 221, -2, 2);
    const mx::array v = random_array({batch, kv_heads, keys, depth}, 222, -2, 2);
    expect_close(attention(q, k, v, scale, mask_of(causal, valid)),
                 want_of(q, k, v, scale, causal, valid), 1e-2, 1e-2);
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionBf16,
                         testing::Values(AttentionCase{1, 1, 1, 32, 1, 1},
                                         AttentionCase{1, 2, 1, 33, 33, 16},
                                         AttentionCase{2, 4, 2, 65, 65, 65},
                                         AttentionCase{1, 2, 1, 40, 300, 20},
                                         AttentionCase{1, 1, 1, 130, 130, 64}));

TEST_P(AttentionBf16, MatchesReference) {
  const auto c = GetParam();
  for (const bool plain : {true, false}) {
    cpu::use_plain_bf16_tiles(plain);
    if (!cpu::has_bf16_panels()) continue;
    SCOPED_TRACE(plain ? "plain tiles" : "the processor's tiles");
    for (const int first : {0, 1, c.keys}) {
      std::vector<int32_t> valid = {first, c.keys};
      valid.resize(static_cast<size_t>(c.batch));
      SCOPED_TRACE(first);
      expect_like_reference(false, valid);
      if (c.queries == c.keys) expect_like_reference(true, valid);
    }
  }
}

TEST(AttentionBf16Values, NotANumberStaysOne) {
  set_precision(Precision::kAuto);
  cpu::use_plain_bf16_tiles(true);
  mx::array q = random_array({1, 1, 64, 32}, 223);
  const mx::array bad =
      mx::concatenate({mx::full({1, 1, 63, 32}, 0.0F), mx::full({1, 1, 1, 32}, kNan)}, 2);
  for (const float value : values_of(attention(q, bad, q, 0.5F))) EXPECT_TRUE(std::isnan(value));
  cpu::use_plain_bf16_tiles(false);
  set_precision(Precision::kFloat32);
}

TEST(Attention, ValidKeysMayBeOtherIntegersOutOfRangeOrStrided) {
  const mx::array q = random_array({3, 2, 5, 8}, 203);
  const Floats want = want_of(q, q, q, 0.5F, false, {0, 5, 2});
  AttentionMask mask;
  mask.valid_keys = mx::array({-3, 99, 2});
  expect_close(attention(q, q, q, 0.5F, mask), want);
  mask.valid_keys = mx::astype(*mask.valid_keys, mx::int64);
  expect_close(attention(q, q, q, 0.5F, mask), want);
  mask.valid_keys = mx::slice(mx::array({0, 7, 5, 7, 2, 7}), {0}, {6}, {2});
  expect_close(attention(q, q, q, 0.5F, mask), want);
  mask.valid_keys = mx::broadcast_to(mx::array(2), {3});
  expect_close(attention(q, q, q, 0.5F, mask), want_of(q, q, q, 0.5F, false, {2, 2, 2}));
}

TEST(Attention, PaddingIsNotRead) {
  const mx::array q = random_array({1, 2, 5, 8}, 204);
  const mx::array k = random_array({1, 2, 3, 8}, 205);
  const mx::array padded = mx::concatenate({k, mx::full({1, 2, 4, 8}, kNan)}, 2);
  expect_close(attention(q, padded, padded, 0.5F, mask_of(false, {3})), want_of(q, k, k, 0.5F));
}

TEST(Attention, ReadsEveryView) {
  const mx::array q = random_array({2, 4, 70, 19}, 206);
  const mx::array k = random_array({2, 2, 70, 19}, 207);
  const mx::array v = random_array({2, 2, 70, 19}, 208);
  const Floats want = want_of(q, k, v, 0.25F);
  const auto run = [&](const auto& view) {
    expect_close(attention(view(q), view(k), view(v), 0.25F), want);
  };
  run([](const mx::array& a) { return inside_wider(a); });
  run([](const mx::array& a) { return stored_swapped(a, 1, 2); });
  run([](const mx::array& a) { return inside_wider(stored_swapped(a, 1, 2)); });
  run([](const mx::array& a) { return stored_swapped(a, 2, 3); });
  run([](const mx::array& a) { return stored_swapped(a, 0, 1); });
  run([](const mx::array& a) { return every_other(a); });
  run([](const mx::array& a) { return stored_backwards(a, 2); });
  run([](const mx::array& a) { return stored_backwards(a, 1); });
  const mx::array same = mx::broadcast_to(random_array({1, 1, 1, 19}, 209), {2, 2, 70, 19});
  expect_close(attention(q, same, same, 0.25F), want_of(q, same, same, 0.25F));
}

TEST(Attention, ReadsHeadsOfAFusedProjection) {
  // [B, L, 3 H D] split into q, k, v of [B, H, L, D].
  const mx::array fused = random_array({2, 9, 3 * 2 * 5}, 210);
  const mx::array parts = mx::transpose(mx::reshape(fused, {2, 9, 3, 2, 5}), {2, 0, 3, 1, 4});
  const auto part = [&](int i) {
    return mx::squeeze(mx::slice(parts, {i, 0, 0, 0, 0}, {i + 1, 2, 2, 9, 5}), 0);
  };
  expect_close(attention(part(0), part(1), part(2), 0.5F),
               want_of(part(0), part(1), part(2), 0.5F));
}

TEST(Attention, ResultIsStoredByToken) {
  const mx::array q = random_array({2, 3, 5, 8}, 211);
  mx::array y = mx::swapaxes(attention(q, q, q, 0.5F), 1, 2);
  mx::eval(y);
  EXPECT_TRUE(y.flags().row_contiguous);
}

// Whole numbers, so that the scores are exact and only the softmax is tested.
TEST(Attention, TakesLargeScores) {
  const auto whole = [](const mx::Shape& shape, uint32_t seed) {
    return mx::round(random_array(shape, seed, -8, 8));
  };
  const mx::array q = whole({1, 2, 70, 64}, 212);
  const mx::array k = whole({1, 2, 600, 64}, 213);
  const mx::array v = random_array({1, 2, 600, 64}, 214);
  for (const float scale : {0.125F, 4.0F, 1024.0F}) {
    SCOPED_TRACE(scale);
    expect_close(attention(q, k, v, scale), want_of(q, k, v, scale));
  }
}

TEST(Attention, ScoresMayRiseOrFallAcrossTiles) {
  for (const float slope : {0.5F, -0.5F}) {
    Floats keys;
    for (int i = 0; i < 1000; ++i) keys.push_back(slope * static_cast<float>(i));
    const mx::array q = mx::ones({1, 1, 3, 1});
    const mx::array k = to_array(keys, {1, 1, 1000, 1});
    const mx::array v = random_array({1, 1, 1000, 1}, 215);
    expect_close(attention(q, k, v, 1.0F), want_of(q, k, v, 1.0F));
  }
}

// A NaN among the scores must not become a probability of 0.
TEST(Attention, KeepsNanAndInf) {
  constexpr int kKeys = 300;  // more than a tile
  const Floats fine = random_floats(kKeys * 9, 216);
  const mx::Shape shape = {1, 1, kKeys, 9};
  const mx::array good = to_array(fine, shape);
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const size_t row : {0, 255, 299}) {
      const mx::array broken = to_array(with_value(fine, row * 9 + 4, bad), shape);
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(testing::Message() << bad << " in row " << row << (causal ? " causal" : ""));
        const AttentionMask mask = mask_of(causal);
        EXPECT_FALSE(all_finite(attention(broken, good, good, 0.3F, mask)));
        // An infinite key may rightly end in a score of -inf, a probability of 0.
        if (std::isnan(bad) || !causal) {
          EXPECT_FALSE(all_finite(attention(good, broken, good, 0.3F, mask)));
        }
        EXPECT_FALSE(all_finite(attention(good, good, broken, 0.3F, mask)));
      }
    }
  }
  EXPECT_FALSE(all_finite(attention(mx::full(shape, kNan), good, good, 0.3F)));
}

TEST(Attention, GradientsMatchDifferences) {
  const Arrays inputs = {random_array({2, 2, 3, 3}, 217), random_array({2, 1, 3, 3}, 218),
                         random_array({2, 1, 3, 3}, 219)};
  for (const bool causal : {false, true}) {
    for (const std::vector<int32_t>& valid :
         {std::vector<int32_t>{}, std::vector<int32_t>{2, 3}, std::vector<int32_t>{0, 1}}) {
      SCOPED_TRACE(testing::Message() << causal << " " << (valid.empty() ? -1 : valid[0]));
      const auto op = [&](const Arrays& in) {
        return attention(in[0], in[1], in[2], 0.5F, mask_of(causal, valid));
      };
      expect_gradients(op, inputs, {0, 1, 2});
      expect_fallback_agrees(op, inputs);
    }
  }
}

TEST(Attention, IsDeterministic) {
  expect_deterministic([](const Arrays& in) { return attention(in[0], in[0], in[0], 0.1F); },
                       {random_array({1, 3, 400, 64}, 220)});
}

TEST(Attention, RefusesMismatches) {
  const mx::array q = mx::zeros({1, 4, 5, 8});
  EXPECT_THROW(attention(q, mx::zeros({1, 3, 5, 8}), mx::zeros({1, 3, 5, 8}), 1),
               std::invalid_argument);
  EXPECT_THROW(attention(q, mx::zeros({1, 0, 5, 8}), mx::zeros({1, 0, 5, 8}), 1),
               std::invalid_argument);
  EXPECT_THROW(attention(q, mx::zeros({2, 4, 5, 8}), mx::zeros({2, 4, 5, 8}), 1),
               std::invalid_argument);
  EXPECT_THROW(attention(q, mx::zeros({1, 4, 5, 7}), mx::zeros({1, 4, 5, 7}), 1),
               std::invalid_argument);
  EXPECT_THROW(attention(q, q, mx::zeros({1, 4, 6, 8}), 1), std::invalid_argument);
  EXPECT_THROW(attention(q, q, q, 0), std::invalid_argument);
  EXPECT_THROW(attention(q, q, q, kNan), std::invalid_argument);
  EXPECT_THROW(attention(q, q, mx::zeros({1, 4, 5, 8}, mx::float16), 1), std::invalid_argument);
  const mx::array longer = mx::zeros({1, 4, 6, 8});
  EXPECT_THROW(attention(q, longer, longer, 1, mask_of(true)), std::invalid_argument);
  EXPECT_THROW(attention(q, q, q, 1, mask_of(false, {1, 2})), std::invalid_argument);
}

// bfloat16 products where the processor has them.
TEST(AttentionAuto, StaysNearTheExactOne) {
  const auto q = random_array({2, 6, 70, 64}, 90);
  const auto k = random_array({2, 2, 70, 64}, 91);
  const auto v = random_array({2, 2, 70, 64}, 92);
  const mx::array valid({45, 0}, {2}, mx::int32);
  for (const AttentionMask& mask :
       {AttentionMask{}, AttentionMask{.causal = true, .valid_keys = std::nullopt},
        AttentionMask{.causal = true, .valid_keys = valid},
        AttentionMask{.causal = false, .valid_keys = valid}}) {
    const mx::array want = attention(q, k, v, 0.125F, mask);
    mx::eval(want);
    set_precision(Precision::kAuto);
    const mx::array got = attention(q, k, v, 0.125F, mask);
    mx::eval(got);
    set_precision(Precision::kFloat32);
    EXPECT_LT(relative_error(got, values_of(want)), 1e-2);
  }
}

}  // namespace
}  // namespace mere::test
