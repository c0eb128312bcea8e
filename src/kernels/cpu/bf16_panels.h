// bfloat16 panels for gemm.h: tiles of 32x32, float32 sums, on AMX or AVX512-BF16.
//
// A-panel: 32 rows; B-panel: 32 columns. For every 32 values of k two blocks of 1 KB each, as the
// tile registers of AMX read them: of A [16 rows][32], of B [16 pairs of k][16 columns][2]. k is
// filled up with zeros to a multiple of 32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/stored.h"

namespace mere::cpu {

// Whether the processor multiplies bfloat16 faster than float32. The functions below that multiply
// need it.
bool has_bf16_panels();

// For tests: plain loops in place of the processor's instructions, which makes has_bf16_panels()
// true anywhere. Not while anything computes.
void use_plain_bf16_tiles(bool use);

inline constexpr int64_t kBf16Lanes = 32;  // rows, columns, and the unit of k

inline int64_t bf16_panel_bytes(int64_t k) {
  return (k + kBf16Lanes - 1) / kBf16Lanes * kBf16Lanes * kBf16Lanes * 2;
}

// Where row `row` of A-panels for `k` begins: 32 values of k every kBf16StepBytes, for writing them
// without pack_a_bf16(). Rows up to a multiple of 32 may be left undefined: so are their products.
inline constexpr int64_t kBf16StepBytes = 2048;
std::byte* bf16_panel_row(std::byte* panels, int64_t row, int64_t k);

// Rows of a float32 matrix [rows, k], rounded to nearest.
void pack_a_bf16(const float* from, int64_t stride, int64_t rows, int64_t k, std::byte* out);

// The transposed of a matrix [columns, k] as a weight is stored.
void pack_b_bf16(Stored type, const void* from, int64_t stride, int64_t columns, int64_t k,
                 std::byte* out);
// A float32 matrix [k, columns].
void pack_b_columns_bf16(const float* from, int64_t stride, int64_t columns, int64_t k,
                         std::byte* out);

// c[rows, columns] (row stride ldc) = a b, or += with `accumulate`. One thread. b's panels may have
// been packed for a larger k: `b_panel_bytes` apart.
void multiply_packed_bf16(const std::byte* a, const std::byte* b, int64_t b_panel_bytes, int64_t k,
                          int64_t rows, int64_t columns, float* c, int64_t ldc, bool accumulate);

}  // namespace mere::cpu
