#include "kernels/cpu/few_rows.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <omp.h>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cpu/parallel.h"

namespace mere::test {
namespace {

using cpu::AffineMatrix;
using cpu::FewRows;
using cpu::FixedPoint;
using cpu::Stored;
using cpu::StoredMatrix;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kUntouched = 12345.0F;

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 bits(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(bits() >> 8) * 0x1p-23F - 1.0F;
  return values;
}

uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// A value that all three types hold: sign, exponent and five bits of fraction.
float five_bits(float value) {
  const uint32_t bits = bits_of(value) & 0xFFFC0000;
  float cut = 0;
  std::memcpy(&cut, &bits, sizeof cut);
  return std::fabs(cut) < 0x1p-14F ? 0.0F : cut;
}

uint16_t to_half(float value, Stored type) {
  const uint32_t bits = bits_of(value);
  if (type == Stored::kBFloat16) return static_cast<uint16_t>(bits >> 16);
  const uint32_t sign = bits >> 16 & 0x8000;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7E00);
  if (std::isinf(value)) return static_cast<uint16_t>(sign | 0x7C00);
  if (value == 0) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | ((bits & 0x7FFFFFFF) - (112U << 23)) >> 13);
}

// Bytes that begin at an odd address and end where the matrix does, so that address checking finds
// every read past it.
class OddBytes {
 public:
  explicit OddBytes(int64_t size) : bytes_(static_cast<size_t>(size) + 1) {}
  uint8_t* data() { return bytes_.data() + 1; }

 private:
  std::vector<uint8_t> bytes_;
};

// A floating matrix [rows, columns] of values that every type holds, with padded rows.
struct Matrix {
  Matrix(Stored type, int64_t rows, int64_t columns, uint32_t seed)
      : columns(columns),
        stride(columns + 3),
        type(type),
        values(random_values(rows * columns, seed)),
        bytes((rows * stride - 3) * element_size()) {
    for (float& v : values) v = five_bits(v);
    for (int64_t i = 0; i < rows * columns; ++i) store(i);
  }

  int64_t element_size() const { return type == Stored::kFloat32 ? 4 : 2; }

  void set(int64_t row, int64_t column, float value) {
    values[static_cast<size_t>(row * columns + column)] = value;
    store(row * columns + column);
  }

  float at(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * columns + column)];
  }

  StoredMatrix stored() { return {type, bytes.data(), stride}; }

  int64_t columns, stride;
  Stored type;
  std::vector<float> values;
  OddBytes bytes;

 private:
  void store(int64_t index) {
    const float value = values[static_cast<size_t>(index)];
    const uint16_t half = to_half(value, type);
    uint8_t* to = bytes.data() + (index / columns * stride + index % columns) * element_size();
    if (type == Stored::kFloat32) {
      std::memcpy(to, &value, 4);
    } else {
      std::memcpy(to, &half, 2);
    }
  }
};

// An affine matrix with random codes.
struct Quantized {
  Quantized(int bits, int64_t group, int64_t n, int64_t k, Stored scale_type, Stored bias_type)
      : bits(bits),
        group(group),
        k(k),
        stride(k * bits / 32 + 1),
        codes((n * stride - 1) * 4),
        scales(scale_type, n, k / group, 21),
        biases(bias_type, n, k / group, 22) {
    std::mt19937 random(20);
    for (int64_t i = 0; i < (n * stride - 1) * 4; ++i) {
      codes.data()[i] = static_cast<uint8_t>(random());
    }
  }

  double at(int64_t row, int64_t column) {
    uint32_t code = 0;
    for (int b = 0; b < bits; ++b) {
      const int64_t bit = column * bits + b;
      code |= (codes.data()[row * stride * 4 + bit / 8] >> (bit % 8) & 1U) << b;
    }
    return double{scales.at(row, column / group)} * code + double{biases.at(row, column / group)};
  }

  AffineMatrix stored() {
    return {bits, group, codes.data(), stride, scales.stored(), biases.stored()};
  }

  int bits;
  int64_t group, k, stride;
  OddBytes codes;
  Matrix scales, biases;
};

// Rows of x and y wider than they need to be.
struct Problem {
  Problem(int64_t rows, int64_t n, int64_t k)
      : rows(rows),
        n(n),
        k(k),
        x(random_values(rows * (k + 5), 7)),
        y(static_cast<size_t>(rows * (n + 2)), kUntouched) {}

  FewRows product() { return {x.data(), k + 5, rows, k, n, y.data(), n + 2}; }
  float& x_at(int64_t row, int64_t column) {
    return x[static_cast<size_t>(row * (k + 5) + column)];
  }
  float y_at(int64_t row, int64_t column) { return y[static_cast<size_t>(row * (n + 2) + column)]; }

  int64_t rows, n, k;
  std::vector<float> x, y;
};

// y against sums in double, within `tolerance` of the sum of magnitudes; nothing between the rows
// of y is written.
template <class Weight>
void expect_product(Problem& p, const Weight& weight, double tolerance) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      double size = 0;
      for (int64_t i = 0; i < p.k; ++i) {
        const double term = double{p.x_at(r, i)} * weight(j, i);
        sum += term;
        size += std::fabs(term);
      }
      ASSERT_NEAR(p.y_at(r, j), sum, tolerance * size) << "row " << r << ", column " << j;
    }
    EXPECT_EQ(p.y_at(r, p.n), kUntouched);
    EXPECT_EQ(p.y_at(r, p.n + 1), kUntouched);
  }
}

// Runs f with 1 and with 2 threads: the results must be the same bits.
template <class F>
void with_threads(Problem& p, const F& f) {
  cpu::configure();
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  f();
  const std::vector<float> alone = p.y;
  std::fill(p.y.begin(), p.y.end(), kUntouched);
  omp_set_num_threads(2);
  f();
  omp_set_num_threads(before);
  EXPECT_EQ(std::memcmp(alone.data(), p.y.data(), alone.size() * sizeof(float)), 0);
}

constexpr Stored kTypes[] = {Stored::kFloat32, Stored::kFloat16, Stored::kBFloat16};
constexpr double kFloatTolerance = 1e-6;
// Half a step of 16 bits for every value, all the same way, and what groups of unequal values add.
constexpr double kInt16Tolerance = 1e-4;

double tolerance_of(FixedPoint precision) {
  return precision == FixedPoint::kInt30 ? kFloatTolerance : kInt16Tolerance;
}

TEST(FewRowsDense, MatchesPlainSums) {
  for (const Stored type : kTypes) {
    for (int64_t rows = 1; rows <= cpu::kFewRows; ++rows) {
      for (const auto& [n, k] : {std::pair{1, 1}, {3, 7}, {5, 33}, {17, 64}, {23, 301}}) {
        SCOPED_TRACE(testing::Message()
                     << static_cast<int>(type) << ": " << rows << " rows, " << n << " x " << k);
        Matrix w(type, n, k, 3);
        Problem p(rows, n, k);
        cpu::few_rows_dense(p.product(), w.stored());
        expect_product(
            p, [&](int64_t j, int64_t i) { return double{w.at(j, i)}; }, kFloatTolerance);
      }
    }
  }
}

TEST(FewRowsDense, DoesNotDependOnThreads) {
  for (const Stored type : kTypes) {
    for (const int64_t rows : {1, 2, 7}) {
      Matrix w(type, 301, 515, 4);
      Problem p(rows, 301, 515);
      with_threads(p, [&] { cpu::few_rows_dense(p.product(), w.stored()); });
    }
  }
}

TEST(FewRowsDense, PassesOnWhatIsNotFinite) {
  for (const Stored type : kTypes) {
    for (const int64_t column : {0, 32, 36}) {
      Matrix w(type, 4, 37, 5);
      w.set(1, column, kNan);
      w.set(2, column, kInf);
      Problem p(3, 4, 37);
      p.x_at(1, column) = kInf;
      p.x_at(2, column) = 1.0F;
      cpu::few_rows_dense(p.product(), w.stored());
      EXPECT_TRUE(std::isfinite(p.y_at(0, 0)));
      EXPECT_FALSE(std::isfinite(p.y_at(1, 0)));
      for (int64_t r = 0; r < 3; ++r) EXPECT_TRUE(std::isnan(p.y_at(r, 1)));
      EXPECT_EQ(p.y_at(2, 2), kInf);
      EXPECT_TRUE(std::isfinite(p.y_at(2, 3)));
    }
  }
}

// Parameters: bits, group, precision.
class FewRowsAffine : public testing::TestWithParam<std::tuple<int, int, FixedPoint>> {
 protected:
  int bits() const { return std::get<0>(GetParam()); }
  int group() const { return std::get<1>(GetParam()); }
  FixedPoint precision() const { return std::get<2>(GetParam()); }
  Quantized matrix(int64_t n, int64_t k, Stored scales = Stored::kFloat32,
                   Stored biases = Stored::kFloat32) const {
    return {bits(), group(), n, k, scales, biases};
  }
};

TEST_P(FewRowsAffine, MatchesPlainSums) {
  for (int64_t rows = 1; rows <= cpu::kFewRows; ++rows) {
    for (const int64_t groups : {1, 3, 9}) {
      const int64_t n = 2 * rows + 1;
      SCOPED_TRACE(testing::Message() << rows << " rows, " << groups << " groups");
      Quantized w = matrix(n, groups * group(), kTypes[rows % 3], kTypes[groups % 2]);
      Problem p(rows, n, w.k);
      cpu::few_rows_affine(p.product(), w.stored(), precision());
      expect_product(
          p, [&](int64_t j, int64_t i) { return w.at(j, i); }, tolerance_of(precision()));
    }
  }
}

TEST_P(FewRowsAffine, HoldsTheExtremes) {
  Quantized w = matrix(3, 2 * group());
  std::memset(w.codes.data(), 0xFF, static_cast<size_t>(w.stride * 4));
  for (const float size : {1.0F, -1.0F, 3e30F, 1e-20F, 0.0F}) {
    SCOPED_TRACE(size);
    Problem p(2, 3, w.k);
    for (float& v : p.x) v = size;
    p.x_at(1, 5) = size / 3;
    cpu::few_rows_affine(p.product(), w.stored(), precision());
    expect_product(
        p, [&](int64_t j, int64_t i) { return w.at(j, i); }, tolerance_of(precision()));
  }
}

TEST_P(FewRowsAffine, DoesNotDependOnThreads) {
  for (const int64_t rows : {1, 6}) {
    Quantized w = matrix(301, 5 * group(), Stored::kBFloat16);
    Problem p(rows, 301, w.k);
    with_threads(p, [&] { cpu::few_rows_affine(p.product(), w.stored(), precision()); });
  }
}

TEST_P(FewRowsAffine, PassesOnWhatIsNotFinite) {
  for (const float value : {kNan, kInf, -kInf}) {
    Quantized w = matrix(3, 3 * group(), Stored::kFloat32, Stored::kFloat16);
    w.scales.set(1, 2, value);
    Problem p(3, 3, w.k);
    p.x_at(1, w.k - 1) = value;
    cpu::few_rows_affine(p.product(), w.stored(), precision());
    for (int64_t j = 0; j < 3; ++j) {
      EXPECT_TRUE(std::isnan(p.y_at(1, j)));
      EXPECT_EQ(std::isfinite(p.y_at(0, j)), j != 1);
      EXPECT_EQ(std::isfinite(p.y_at(2, j)), j != 1);
    }
  }
}

std::string name_of(const testing::TestParamInfo<FewRowsAffine::ParamType>& info) {
  const auto [bits, group, precision] = info.param;
  return std::to_string(bits) + "Bits" + std::to_string(group) +
         (precision == FixedPoint::kInt30 ? "Int30" : "Int16");
}

INSTANTIATE_TEST_SUITE_P(Codes, FewRowsAffine,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5, 6, 8),
                                          testing::Values(32, 64, 128),
                                          testing::Values(FixedPoint::kInt30, FixedPoint::kInt16)),
                         name_of);

}  // namespace
}  // namespace mere::test
