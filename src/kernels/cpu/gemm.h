// Matrix products over packed panels, the core of linear, attention and convolution.
//
// Both operands are first laid out as a tile of the product reads them, in float32 or in int16
// fixed point. Packing is where other storage types are widened, so a weight is read once and no
// wide copy of it ever exists as a whole.
//
// A-panel: tile.rows rows, values of one k side by side. B-panel: the same for tile.columns
// columns. Rows and columns that are missing in the last panel are zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cpu/stored.h"

namespace mere::cpu {

struct GemmTile {
  int64_t rows;     // 6 with AVX2, 14 with AVX-512
  int64_t columns;  // two vectors: 16 with AVX2, 32 with AVX-512
};
GemmTile gemm_tile();  // of the running processor

// --- float32 panels: [panel][k][lane] floats, panels of `lanes` rows of a matrix ---

constexpr int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
inline int64_t panels(int64_t rows, int64_t lanes) { return (rows + lanes - 1) / lanes; }

// Rows of a row-major matrix [rows, k] whose rows are `stride` elements apart.
void pack_rows(Stored type, const void* from, int64_t stride, int64_t rows, int64_t k,
               int64_t lanes, float* out);
// Columns of a row-major float32 matrix [k, columns].
void pack_columns(const float* from, int64_t stride, int64_t columns, int64_t k, int64_t lanes,
                  float* out);

// c[rows, columns] (row stride ldc) = a b, or += with `accumulate`. One thread.
void multiply_packed(const float* a, const float* b, int64_t k, int64_t rows, int64_t columns,
                     float* c, int64_t ldc, bool accumulate);

// --- int16 panels, x86 only: fixed point with one scale for `group` values of k ---
//
// A panel is a run of groups: [group / 2][lane] pairs of int16, then [lane] float scales. Each pair
// product is summed in int32, so within a group |a| |b| must stay below 2^31; see kNormA, kNormB.

bool has_int16_gemm();  // with AVX2 or better
inline int64_t int16_panel_bytes(int64_t k, int64_t group, int64_t lanes) {
  return (k / group) * (group / 2 + 1) * lanes * static_cast<int64_t>(sizeof(int32_t));
}

// Largest Euclidean norm of a group's integers. Their product bounds every partial sum
// (Cauchy-Schwarz), so no sum overflows whatever the values are.
inline constexpr float kNormA = 89000.0F;  // 2^16.44
inline constexpr float kNormB = 22400.0F;  // 2^14.45

// Rows [rows, k], k a multiple of `group`, a multiple of 32. Scales are as small as the largest
// value and `norm` allow; with `power_of_two` a power of two, which keeps bfloat16 values exact but
// for the tiniest of a group. A group with a value that is not finite gets a NaN scale. `sums`,
// when given, receives the float32 sum of each group: sums[row * sums_stride + group index].
void pack_rows_int16(Stored type, const void* from, int64_t stride, int64_t rows, int64_t k,
                     int64_t group, int64_t lanes, float norm, bool power_of_two, std::byte* out,
                     float* sums, int64_t sums_stride);

// `values` [rows, k] int16 with `scales` [rows, k / group], already in fixed point.
void pack_int16(const int16_t* values, const float* scales, int64_t rows, int64_t k, int64_t group,
                int64_t lanes, std::byte* out);

void multiply_packed_int16(const std::byte* a, const std::byte* b, int64_t k, int64_t group,
                           int64_t rows, int64_t columns, float* c, int64_t ldc, bool accumulate);

// --- whole products ---

// y[m, n] (row stride ldy) = a b over all threads. Every part of b is packed once per 64 MB of
// packed a, by the thread that uses it next.
enum class Panels { kFloat32, kInt16, kBf16 };

struct Product {
  int64_t m, n, k;
  Panels panels = Panels::kFloat32;
  int64_t group = 0;   // of int16 panels
  int64_t k_unit = 1;  // parts of k are multiples of it (int16: of the group, bf16: of 32)
  bool accumulate = false;
  // Packs rows (columns) [begin, begin + count) for k in [k_begin, k_begin + k_count).
  using Pack = std::function<void(int64_t begin, int64_t count, int64_t k_begin, int64_t k_count,
                                  std::byte* out)>;
  Pack pack_a{}, pack_b{};
  // Called once for every finished block of y, while it is in cache. May be empty.
  std::function<void(int64_t row, int64_t rows, int64_t column, int64_t columns)> finish{};
};
void multiply(const Product& product, float* y, int64_t ldy);

}  // namespace mere::cpu
