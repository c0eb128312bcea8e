#include "kernels/cpu/gemm.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>

#include "arrays.h"

#include "kernels/cpu/bf16_panels.h"

namespace mere::test {
namespace {

using cpu::Stored;

// Values of a [rows, k] matrix in a storage type, at an address that suits no type.
class StoredBytes {
 public:
  StoredBytes(const Floats& values, Stored type) : bytes_(values.size() * 4 + 1) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (type == Stored::kFloat32) {
        std::memcpy(&bytes_[1 + 4 * i], &values[i], 4);
      } else {  // bfloat16
        const auto half = static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) >> 16);
        std::memcpy(&bytes_[1 + 2 * i], &half, 2);
      }
    }
  }
  const void* data() const { return &bytes_[1]; }

 private:
  std::vector<char> bytes_;
};

Floats as_bf16(Floats values) {
  for (float& v : values) v = std::bit_cast<float>(std::bit_cast<uint32_t>(v) & 0xFFFF0000U);
  return values;
}

// a [m, k] times b [n, k] transposed, in double.
std::vector<double> product_of(const Floats& a, const Floats& b, int64_t m, int64_t n, int64_t k) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += double{a[i * k + p]} * b[j * k + p];
      c[i * n + j] = sum;
    }
  }
  return c;
}

Floats multiply_f32(const Floats& a, const Floats& b, int64_t m, int64_t n, int64_t k,
                    Stored b_type = Stored::kFloat32, float before = kNan) {
  const StoredBytes stored(b, b_type);
  const cpu::GemmTile tile = cpu::gemm_tile();
  Floats c(static_cast<size_t>(m * n), before);
  cpu::Product product{.m = m, .n = n, .k = k};
  product.accumulate = !std::isnan(before);
  product.pack_a = [&](int64_t row, int64_t count, int64_t first, int64_t size, std::byte* out) {
    cpu::pack_rows(Stored::kFloat32, a.data() + row * k + first, k, count, size, tile.rows,
                   reinterpret_cast<float*>(out));
  };
  const cpu::StoredMatrix matrix{b_type, stored.data(), k};
  product.pack_b = [&](int64_t row, int64_t count, int64_t first, int64_t size, std::byte* out) {
    cpu::pack_rows(b_type, matrix.at(row, first), k, count, size, tile.columns,
                   reinterpret_cast<float*>(out));
  };
  cpu::multiply(product, c.data(), n);
  return c;
}

Floats multiply_i16(const Floats& a, const Floats& b, int64_t m, int64_t n, int64_t k,
                    int64_t group) {
  const StoredBytes stored(b, Stored::kBFloat16);
  const cpu::GemmTile tile = cpu::gemm_tile();
  Floats c(static_cast<size_t>(m * n), kNan);
  cpu::Product product{.m = m, .n = n, .k = k, .panels = cpu::Panels::kInt16, .group = group};
  product.pack_a = [&](int64_t row, int64_t count, int64_t first, int64_t size, std::byte* out) {
    cpu::pack_rows_int16(Stored::kFloat32, a.data() + row * k + first, k, count, size, group,
                         tile.rows, cpu::kNormA, false, out, nullptr, 0);
  };
  const cpu::StoredMatrix matrix{Stored::kBFloat16, stored.data(), k};
  product.pack_b = [&](int64_t row, int64_t count, int64_t first, int64_t size, std::byte* out) {
    cpu::pack_rows_int16(Stored::kBFloat16, matrix.at(row, first), k, count, size, group,
                         tile.columns, cpu::kNormB, true, out, nullptr, 0);
  };
  cpu::multiply(product, c.data(), n);
  return c;
}

using Shape = std::tuple<int, int, int>;  // m, n, k

class Gemm : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Gemm,
                         testing::Values(Shape{1, 1, 1}, Shape{6, 16, 8}, Shape{7, 17, 9},
                                         Shape{13, 5, 3}, Shape{5, 33, 1000}, Shape{301, 203, 37},
                                         Shape{29, 31, 1201}));

TEST_P(Gemm, MatchesDoublePrecision) {
  const auto [m, n, k] = GetParam();
  const Floats a = random_floats(m * k, 1);
  for (const Stored type : {Stored::kFloat32, Stored::kBFloat16}) {
    Floats b = random_floats(n * k, 2);
    if (type == Stored::kBFloat16) b = as_bf16(b);
    EXPECT_LT(relative_error(multiply_f32(a, b, m, n, k, type), product_of(a, b, m, n, k)), 2e-6);
  }
}

TEST(Gemm, Accumulates) {
  const Floats a = random_floats(7 * 900, 3);
  const Floats b = random_floats(19 * 900, 4);
  auto want = product_of(a, b, 7, 19, 900);
  for (double& v : want) v += 100;
  EXPECT_LT(relative_error(multiply_f32(a, b, 7, 19, 900, Stored::kFloat32, 100), want), 1e-6);
}

// Asking what the processor has must not undo MERERUN_CPU_ISA.
TEST(Gemm, TileStaysTheSame) {
  const cpu::GemmTile before = cpu::gemm_tile();
  (void)cpu::has_int16_gemm();
  const cpu::GemmTile after = cpu::gemm_tile();
  EXPECT_EQ(before.rows, after.rows);
  EXPECT_EQ(before.columns, after.columns);
}

// More packed rows than are kept at a time.
TEST(Gemm, WorksInChunksOfRows) {
  constexpr int64_t kRows = 3001;
  constexpr int64_t kDepth = 12000;
  const Floats a(kRows * kDepth, 0.5F);
  const Floats b(kDepth, 2.0F);
  const Floats c = multiply_f32(a, b, kRows, 1, kDepth);
  for (const float v : c) ASSERT_EQ(v, float{kDepth});
}

class GemmInt16Values : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::has_int16_gemm()) GTEST_SKIP() << "no int16 products on this processor";
  }
};
class GemmInt16 : public GemmInt16Values, public testing::WithParamInterface<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, GemmInt16,
                         testing::Values(Shape{1, 1, 128}, Shape{6, 16, 128}, Shape{7, 17, 256},
                                         Shape{13, 5, 1408}, Shape{301, 203, 128}));

TEST_P(GemmInt16, KeepsFourDigits) {
  const auto [m, n, k] = GetParam();
  const Floats a = random_floats(m * k, 5);
  const Floats b = as_bf16(random_floats(n * k, 6));
  for (const int64_t group : {32, 64, 128}) {
    EXPECT_LT(relative_error(multiply_i16(a, b, m, n, k, group), product_of(a, b, m, n, k)), 3e-4);
  }
}

// Every product of the group has the same sign and the largest size: sums come closest to 2^31.
TEST_F(GemmInt16Values, SumsOfAlignedVectorsDoNotOverflow) {
  for (const int64_t group : {32, 64, 128}) {
    const int64_t k = 2 * group;
    Floats a = as_bf16(random_floats(6 * k, 7));
    for (int flat = 0; flat < 2; ++flat) {
      if (flat == 1) a.assign(a.size(), -3.0F);
      const Floats c = multiply_i16(a, a, 6, 6, k, group);
      EXPECT_LT(relative_error(c, product_of(a, a, 6, 6, k)), 1e-4) << group;
    }
  }
}

TEST_F(GemmInt16Values, OutliersCostOnlyTheirGroup) {
  Floats a = random_floats(6 * 128, 8);
  const Floats b = as_bf16(random_floats(16 * 128, 9));
  for (int row = 0; row < 6; ++row) a[row * 128 + 70] = 1e6F;  // of the second group
  const Floats c = multiply_i16(a, b, 6, 16, 128, 64);
  EXPECT_LT(relative_error(c, product_of(a, b, 6, 16, 128)), 1e-4);
}

TEST_F(GemmInt16Values, ZerosAndTinyValuesGiveZeros) {
  Floats a(6 * 64, 0.0F);
  const Floats b = as_bf16(random_floats(16 * 64, 10));
  for (const float c : multiply_i16(a, b, 6, 16, 64, 64)) EXPECT_EQ(c, 0.0F);
  a.assign(a.size(), 1e-41F);
  for (const float c : multiply_i16(a, b, 6, 16, 64, 64)) EXPECT_LT(std::abs(c), 1e-37F);
}

TEST_F(GemmInt16Values, WhatIsNotFiniteStaysSeen) {
  const Floats b = as_bf16(random_floats(16 * 128, 11));
  for (const float bad : {kNan, kInf, -kInf}) {
    Floats a = random_floats(6 * 128, 12);
    a[2 * 128 + 100] = bad;
    const Floats c = multiply_i16(a, b, 6, 16, 128, 64);
    for (int i = 0; i < 6 * 16; ++i) EXPECT_EQ(std::isnan(c[i]), i / 16 == 2) << i;
  }
}

class GemmBf16 : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, GemmBf16,
                         testing::Values(Shape{1, 1, 1}, Shape{32, 32, 32}, Shape{33, 31, 95},
                                         Shape{70, 65, 64}, Shape{101, 70, 600},
                                         Shape{33, 32, 3300}));

// Whether the processor has tiles of its own; where it has none, only the plain ones are tested.
bool has_bf16_tiles() {
  cpu::use_plain_bf16_tiles(false);
  return cpu::has_bf16_panels();
}

TEST(GemmBf16Tiles, AreRefusedWhereTheProcessorHasNone) {
  if (has_bf16_tiles()) GTEST_SKIP() << "this processor has them";
  Floats c(1);
  EXPECT_THROW(cpu::multiply_packed_bf16(nullptr, nullptr, 0, 1, 1, 1, c.data(), 1, false),
               std::logic_error);
}

// Products of bfloat16 numbers are exact in float32, so only the sums round.
TEST_P(GemmBf16, IsExactForBfloat16Numbers) {
  const auto [m, n, k] = GetParam();
  const Floats a = as_bf16(random_floats(m * k, 20));
  const Floats b = as_bf16(random_floats(n * k, 21));
  const StoredBytes stored(b, Stored::kBFloat16);
  Floats turned(b.size());
  for (int j = 0; j < n; ++j) {
    for (int p = 0; p < k; ++p) turned[p * n + j] = b[j * k + p];
  }
  const cpu::StoredMatrix matrix{Stored::kBFloat16, stored.data(), k};
  cpu::Product product{.m = m, .n = n, .k = k, .panels = cpu::Panels::kBf16};
  product.pack_a = [&](int64_t row, int64_t count, int64_t first, int64_t size, std::byte* out) {
    cpu::pack_a_bf16(a.data() + row * k + first, k, count, size, out);
  };
  const auto want = product_of(a, b, m, n, k);
  for (const bool plain : {true, false}) {
    if (!plain && !has_bf16_tiles()) continue;
    cpu::use_plain_bf16_tiles(plain);
    for (int way = 0; way < 3; ++way) {
      product.pack_b = [&](int64_t row, int64_t count, int64_t first, int64_t size,
                           std::byte* out) {
        if (way == 0) {
          cpu::pack_b_bf16(Stored::kBFloat16, matrix.at(row, first), k, count, size, out);
        } else if (way == 1) {
          cpu::pack_b_bf16(Stored::kFloat32, b.data() + row * k + first, k, count, size, out);
        } else {
          cpu::pack_b_columns_bf16(turned.data() + first * n + row, n, count, size, out);
        }
      };
      Floats c(static_cast<size_t>(m * n), kNan);
      cpu::multiply(product, c.data(), n);
      EXPECT_LT(relative_error(c, want), 2e-6) << way;
    }
  }
  cpu::use_plain_bf16_tiles(false);
}

}  // namespace
}  // namespace mere::test
