// y = x W^T for one to eight rows of x. Each weight is read once, so memory is the limit.
//
//   few_rows_dense({x, k, 1, k, n, y, n}, {Stored::kBFloat16, weight, k});
//
// Weights may lie at any address: mapped files align nothing. Work is split over rows of W, and a
// value of y does not depend on the number of threads.
#pragma once

#include <cstdint>

#include "kernels/cpu/stored.h"

namespace mere::cpu {

inline constexpr int64_t kFewRows = 8;

struct FewRows {
  const float* x;  // [rows, k], row stride ldx
  int64_t ldx;
  int64_t rows;  // 1 to kFewRows
  int64_t k, n;
  float* y;  // [rows, n], row stride ldy
  int64_t ldy;
};

// W [n, k]. Accumulates in float32.
void few_rows_dense(const FewRows& product, const StoredMatrix& w);

// How x meets the codes. Either way each group of x becomes fixed point, products and sums of
// integers are exact, and a value of x that is not finite makes its whole row of y NaN.
enum class FixedPoint {
  kInt30,  // within 2^-30 of the largest |x| of the group: float32 accuracy
  kInt16,  // within 2^-16 of it, and faster
};
// W [n, k] in groups of 32, 64 or 128.
void few_rows_affine(const FewRows& product, const AffineMatrix& w, FixedPoint precision);

}  // namespace mere::cpu
