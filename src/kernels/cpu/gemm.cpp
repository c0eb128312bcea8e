#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>
//
#include "kernels/cpu/stored-inl.h"
#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using WideInt = hn::RebindToSigned<Wide>;

void Shape(int64_t* rows, int64_t* columns) {
  *rows = kTileRows;
  *columns = TileColumns();
}

void HasInt16(bool* has) { *has = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2; }

// Makes GCC 12 finish a row's products before it starts the next: otherwise it keeps all loads of a
// tile alive and spills the accumulators.
template <class V>
HWY_INLINE void InOrder(V& v) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  asm volatile("" : "+v"(v.raw));
#else
  (void)v;
#endif
}

#if HWY_TARGET != HWY_SCALAR
// out[p * lanes + r] = rows[r][p] for r < 4, four p at a time by transposing 4x4 blocks.
template <class T>
void InterleaveFour(const T* from, int64_t stride, int64_t k, int64_t lanes, float* out) {
  const hn::Full128<float> d;
  const hn::Full128<double> pairs;
  int64_t p = 0;
  for (; p + 4 <= k; p += 4, from += 4, out += 4 * lanes) {
    const auto r0 = LoadWide(d, from);
    const auto r1 = LoadWide(d, from + stride);
    const auto r2 = LoadWide(d, from + 2 * stride);
    const auto r3 = LoadWide(d, from + 3 * stride);
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, out);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, out + lanes);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, out + 2 * lanes);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, out + 3 * lanes);
  }
  for (; p < k; ++p, ++from, out += lanes) {
    for (int64_t r = 0; r < 4; ++r) out[r] = ToFloat(from + r * stride);
  }
}

template <class T>
void InterleaveTwo(const T* from, int64_t stride, int64_t k, int64_t lanes, float* out) {
  const hn::Full128<float> d;
  const hn::Full64<float> two;
  int64_t p = 0;
  for (; p + 4 <= k; p += 4, from += 4, out += 4 * lanes) {
    const auto low = hn::InterleaveLower(d, LoadWide(d, from), LoadWide(d, from + stride));
    const auto high = hn::InterleaveUpper(d, LoadWide(d, from), LoadWide(d, from + stride));
    hn::StoreU(hn::LowerHalf(two, low), two, out);
    hn::StoreU(hn::UpperHalf(two, low), two, out + lanes);
    hn::StoreU(hn::LowerHalf(two, high), two, out + 2 * lanes);
    hn::StoreU(hn::UpperHalf(two, high), two, out + 3 * lanes);
  }
  for (; p < k; ++p, ++from, out += lanes) {
    out[0] = ToFloat(from);
    out[1] = ToFloat(from + stride);
  }
}

#endif

// One panel: out[p * lanes + r] = rows[r][p], zero for r >= rows.
template <class T>
void Interleave(const T* from, int64_t stride, int64_t rows, int64_t k, int64_t lanes, float* out) {
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; r + 4 <= rows; r += 4) InterleaveFour(from + r * stride, stride, k, lanes, out + r);
  for (; r + 2 <= rows; r += 2) InterleaveTwo(from + r * stride, stride, k, lanes, out + r);
#endif
  for (; r < rows; ++r) {
    for (int64_t p = 0; p < k; ++p) out[p * lanes + r] = ToFloat(from + r * stride + p);
  }
  for (; r < lanes; ++r) {
    for (int64_t p = 0; p < k; ++p) out[p * lanes + r] = 0.0F;
  }
}

template <class T>
void PackRowsOf(const void* source, int64_t stride, int64_t rows, int64_t k, int64_t lanes,
                float* out) {
  const T* from = static_cast<const T*>(source);
  for (int64_t row = 0; row < rows; row += lanes, out += lanes * k) {
    Interleave(from + row * stride, stride, std::min(lanes, rows - row), k, lanes, out);
  }
}

void PackRows(Stored type, const void* from, int64_t stride, int64_t rows, int64_t k, int64_t lanes,
              float* out) {
  switch (type) {
    case Stored::kFloat32:
      return PackRowsOf<float>(from, stride, rows, k, lanes, out);
    case Stored::kFloat16:
      return PackRowsOf<hwy::float16_t>(from, stride, rows, k, lanes, out);
    case Stored::kBFloat16:
      return PackRowsOf<hwy::bfloat16_t>(from, stride, rows, k, lanes, out);
  }
}

// A full tile: c[kTileRows, two vectors].
void Tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t k, float* c,
          int64_t ldc, bool accumulate) {
  using V = hn::Vec<Wide>;
  const Wide d;
  const size_t lanes = hn::Lanes(d);
  V sum[kTileRows][2];
  HWY_UNROLL(16)
  for (int i = 0; i < kTileRows; ++i) {
    sum[i][0] = hn::Zero(d);
    sum[i][1] = hn::Zero(d);
    hwy::Prefetch(c + i * ldc);
    hwy::Prefetch(c + i * ldc + 2 * lanes - 1);
  }
  for (int64_t p = 0; p < k; ++p, a += kTileRows, b += 2 * lanes) {
    const V b0 = hn::LoadU(d, b);
    const V b1 = hn::LoadU(d, b + lanes);
    HWY_UNROLL(16)
    for (int i = 0; i < kTileRows; ++i) {
      const V s = hn::Set(d, a[i]);
      sum[i][0] = hn::MulAdd(s, b0, sum[i][0]);
      sum[i][1] = hn::MulAdd(s, b1, sum[i][1]);
    }
  }
  HWY_UNROLL(16)
  for (int i = 0; i < kTileRows; ++i) {
    float* to = c + i * ldc;
    if (accumulate) {
      sum[i][0] = hn::Add(sum[i][0], hn::LoadU(d, to));
      sum[i][1] = hn::Add(sum[i][1], hn::LoadU(d, to + lanes));
    }
    hn::StoreU(sum[i][0], d, to);
    hn::StoreU(sum[i][1], d, to + lanes);
  }
}

// A full tile over groups of int16 pairs.
void TileInt16(const std::byte* HWY_RESTRICT a_bytes, const std::byte* HWY_RESTRICT b_bytes,
               int64_t groups, int64_t pairs, float* c, int64_t ldc, bool accumulate) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  using V = hn::Vec<WideInt>;
  const Wide d;
  const WideInt di;
  const hn::Repartition<int16_t, WideInt> halves;
  const size_t lanes = hn::Lanes(d);
  const auto* a = reinterpret_cast<const int32_t*>(a_bytes);
  const auto* b = reinterpret_cast<const int32_t*>(b_bytes);
  for (int i = 0; i < kTileRows; ++i) {
    hwy::Prefetch(c + i * ldc);
    hwy::Prefetch(c + i * ldc + 2 * lanes - 1);
  }
  for (int64_t g = 0; g < groups; ++g, accumulate = true) {
    V sum[kTileRows][2];
    HWY_UNROLL(16)
    for (int i = 0; i < kTileRows; ++i) {
      sum[i][0] = hn::Zero(di);
      sum[i][1] = hn::Zero(di);
    }
    for (int64_t p = 0; p < pairs; ++p, a += kTileRows, b += 2 * lanes) {
      const auto b0 = hn::BitCast(halves, hn::LoadU(di, b));
      const auto b1 = hn::BitCast(halves, hn::LoadU(di, b + lanes));
      HWY_UNROLL(16)
      for (int i = 0; i < kTileRows; ++i) {
        const auto s = hn::BitCast(halves, hn::Set(di, a[i]));
        V unused = hn::Zero(di);
        sum[i][0] = hn::ReorderWidenMulAccumulate(di, s, b0, sum[i][0], unused);
        sum[i][1] = hn::ReorderWidenMulAccumulate(di, s, b1, sum[i][1], unused);
        InOrder(sum[i][0]);
        InOrder(sum[i][1]);
      }
    }
    const auto* a_scales = reinterpret_cast<const float*>(a);
    const auto* b_scales = reinterpret_cast<const float*>(b);
    const auto scale0 = hn::LoadU(d, b_scales);
    const auto scale1 = hn::LoadU(d, b_scales + lanes);
    HWY_UNROLL(16)
    for (int i = 0; i < kTileRows; ++i) {
      float* to = c + i * ldc;
      const auto s = hn::Set(d, a_scales[i]);
      const auto c0 = accumulate ? hn::LoadU(d, to) : hn::Zero(d);
      const auto c1 = accumulate ? hn::LoadU(d, to + lanes) : hn::Zero(d);
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, sum[i][0]), hn::Mul(s, scale0), c0), d, to);
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, sum[i][1]), hn::Mul(s, scale1), c1), d, to + lanes);
    }
    a += kTileRows;
    b += 2 * lanes;
  }
#else
  (void)a_bytes, (void)b_bytes, (void)groups, (void)pairs, (void)c, (void)ldc, (void)accumulate;
  HWY_ABORT("no int16 tile on this processor");
#endif
}

// Runs full tiles in place and the ragged ones at the right and bottom through a buffer.
// Panels of b in the outer loop: one stays in the first-level cache while those of a go by.
template <class A, class B, class RunTile>
HWY_INLINE void ForTiles(const A* a, const B* b, int64_t a_panel, int64_t b_panel, int64_t rows,
                         int64_t columns, float* c, int64_t ldc, bool accumulate,
                         const RunTile& tile) {
  const int64_t width = TileColumns();
  HWY_ALIGN float edge[kTileRows * 2 * hn::MaxLanes(Wide())];
  for (int64_t j = 0; j < columns; j += width, b += b_panel) {
    const A* a_at = a;
    for (int64_t i = 0; i < rows; i += kTileRows, a_at += a_panel) {
      float* to = c + i * ldc + j;
      const int64_t height = std::min<int64_t>(kTileRows, rows - i);
      const int64_t count = std::min(width, columns - j);
      if (height == kTileRows && count == width) {
        tile(a_at, b, to, ldc, accumulate);
        continue;
      }
      tile(a_at, b, edge, width, false);
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t s = 0; s < count; ++s) {
          float& value = to[r * ldc + s];
          value = accumulate ? value + edge[r * width + s] : edge[r * width + s];
        }
      }
    }
  }
}

void MultiplyPacked(const float* a, const float* b, int64_t k, int64_t rows, int64_t columns,
                    float* c, int64_t ldc, bool accumulate) {
  const int64_t width = TileColumns();
  ForTiles(a, b, k * kTileRows, k * width, rows, columns, c, ldc, accumulate,
           [k](const float* a_panel, const float* b_panel, float* to, int64_t stride, bool add)
               HWY_ATTR { Tile(a_panel, b_panel, k, to, stride, add); });
}

void MultiplyPackedInt16(const std::byte* a, const std::byte* b, int64_t k, int64_t group,
                         int64_t rows, int64_t columns, float* c, int64_t ldc, bool accumulate) {
  const int64_t width = TileColumns();
  ForTiles(a, b, int16_panel_bytes(k, group, kTileRows), int16_panel_bytes(k, group, width), rows,
           columns, c, ldc, accumulate,
           [k, group](const std::byte* a_panel, const std::byte* b_panel, float* to, int64_t stride,
                      bool add)
               HWY_ATTR { TileInt16(a_panel, b_panel, k / group, group / 2, to, stride, add); });
}

// One group of one row to int16. Returns the scale.
template <class T>
float QuantizeGroup(const T* x, int64_t group, float norm, bool power_of_two, int16_t* out,
                    float* sum_out) {
  const Wide d;
  const hn::Rebind<int16_t, Wide> narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Zero(d);
  auto squares = hn::Zero(d);
  for (int64_t i = 0; i < group; i += lanes) {
    const auto v = LoadWide(d, x + i);
    most = hn::Max(most, hn::Abs(v));
    squares = hn::MulAdd(v, v, squares);
  }
  if (sum_out != nullptr) {
    auto sums = hn::Zero(d);
    for (int64_t i = 0; i < group; i += lanes) sums = hn::Add(sums, LoadWide(d, x + i));
    *sum_out = hn::GetLane(hn::SumOfLanes(d, sums));
  }
  const float top = hn::GetLane(hn::MaxOfLanes(d, most));
  const float square = hn::GetLane(hn::SumOfLanes(d, squares));
  constexpr float kLargest = 32767.0F;
  // The sum of squares tells what is not finite; it overflows for values no model has.
  if (!(square <= std::numeric_limits<float>::max())) {
    std::fill_n(out, group, int16_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  float scale = std::max(top / kLargest, std::sqrt(square) / norm);
  // Below this the inverse is not finite and the group's share of any sum is nothing.
  constexpr float kLeast = 1e-35F;
  if (scale < kLeast) {
    std::fill_n(out, group, int16_t{0});
    return 0.0F;
  }
  if (power_of_two) {  // the next one up
    constexpr uint32_t kFraction = (1U << 23) - 1;
    scale = std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + kFraction) & ~kFraction);
  }
  const auto inverse = hn::Set(d, 1.0F / scale);
  for (int64_t i = 0; i < group; i += lanes) {
    const auto v = hn::NearestInt(hn::Mul(LoadWide(d, x + i), inverse));
    hn::StoreU(hn::DemoteTo(narrow, v), narrow, out + i);
  }
  return scale;
}

constexpr int64_t kMostLanes = 64;

template <class T>
void PackRowsInt16Of(const void* source, int64_t stride, int64_t rows, int64_t k, int64_t group,
                     int64_t lanes, float norm, bool power_of_two, std::byte* out, float* sums,
                     int64_t sums_stride) {
  const T* from = static_cast<const T*>(source);
  const int64_t pairs = group / 2;
  HWY_ALIGN int16_t integers[kMostLanes * kMostGroup];
  for (int64_t row = 0; row < rows; row += lanes) {
    const int64_t count = std::min(lanes, rows - row);
    for (int64_t g = 0; g < k / group; ++g) {
      auto* to = reinterpret_cast<float*>(out);
      float* scales = to + pairs * lanes;
      for (int64_t r = 0; r < count; ++r) {
        float* sum = sums == nullptr ? nullptr : sums + (row + r) * sums_stride + g;
        scales[r] = QuantizeGroup(from + (row + r) * stride + g * group, group, norm, power_of_two,
                                  integers + r * group, sum);
      }
      std::fill(scales + count, scales + lanes, 0.0F);
      // Pairs move as one 32-bit value each.
      Interleave(reinterpret_cast<const float*>(integers), pairs, count, pairs, lanes, to);
      out += (pairs + 1) * lanes * static_cast<int64_t>(sizeof(float));
    }
  }
}

void PackRowsInt16(Stored type, const void* from, int64_t stride, int64_t rows, int64_t k,
                   int64_t group, int64_t lanes, float norm, bool power_of_two, std::byte* out,
                   float* sums, int64_t sums_stride) {
  const auto run = type == Stored::kFloat32   ? &PackRowsInt16Of<float>
                   : type == Stored::kFloat16 ? &PackRowsInt16Of<hwy::float16_t>
                                              : &PackRowsInt16Of<hwy::bfloat16_t>;
  run(from, stride, rows, k, group, lanes, norm, power_of_two, out, sums, sums_stride);
}

void PackInt16(const int16_t* values, const float* scales, int64_t rows, int64_t k, int64_t group,
               int64_t lanes, std::byte* out) {
  const int64_t pairs = group / 2;
  const int64_t groups = k / group;
  for (int64_t row = 0; row < rows; row += lanes) {
    const int64_t count = std::min(lanes, rows - row);
    for (int64_t g = 0; g < groups; ++g) {
      auto* to = reinterpret_cast<float*>(out);
      Interleave(reinterpret_cast<const float*>(values + row * k + g * group), k / 2, count, pairs,
                 lanes, to);
      for (int64_t r = 0; r < lanes; ++r) {
        to[pairs * lanes + r] = r < count ? scales[(row + r) * groups + g] : 0.0F;
      }
      out += (pairs + 1) * lanes * static_cast<int64_t>(sizeof(float));
    }
  }
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <hwy/aligned_allocator.h>
#include <new>

#include "kernels/cpu/bf16_panels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"

namespace mere::cpu {
namespace {

HWY_EXPORT(Shape);
HWY_EXPORT(HasInt16);
HWY_EXPORT(PackRows);
HWY_EXPORT(MultiplyPacked);
HWY_EXPORT(PackRowsInt16);
HWY_EXPORT(PackInt16);
HWY_EXPORT(MultiplyPackedInt16);

// Sizes of the blocks that caches hold: a block of a and one of b in the second level; a panel of b
// is what passes through the first.
constexpr int64_t kBlockBytes = 192 << 10;
constexpr int64_t kPanelBytes = 32 << 10;
// k for which blocks of b wait in the second level at the same time, for bfloat16 panels: their
// products are so fast that adding to y in memory for every block of k would cost as much.
constexpr int64_t kMostKAtOnce = 3072;
// Least work worth a thread.
constexpr int64_t kGrainValues = 1 << 15;
constexpr int64_t kGrainProducts = 1 << 18;
constexpr int64_t kMostPackedA = 64 << 20;

}  // namespace

GemmTile gemm_tile() {
  configure();
  GemmTile tile{};
  HWY_DYNAMIC_DISPATCH(Shape)(&tile.rows, &tile.columns);
  return tile;
}

void pack_rows(Stored type, const void* from, int64_t stride, int64_t rows, int64_t k,
               int64_t lanes, float* out) {
  HWY_DYNAMIC_DISPATCH(PackRows)(type, from, stride, rows, k, lanes, out);
}

void pack_columns(const float* from, int64_t stride, int64_t columns, int64_t k, int64_t lanes,
                  float* out) {
  for (int64_t j = 0; j < columns; j += lanes) {
    const int64_t count = std::min(lanes, columns - j);
    for (int64_t p = 0; p < k; ++p, out += lanes) {
      std::memcpy(out, from + p * stride + j, static_cast<size_t>(count) * sizeof(float));
      std::fill(out + count, out + lanes, 0.0F);
    }
  }
}

void multiply_packed(const float* a, const float* b, int64_t k, int64_t rows, int64_t columns,
                     float* c, int64_t ldc, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(MultiplyPacked)(a, b, k, rows, columns, c, ldc, accumulate);
}

bool has_int16_gemm() {
  // Not hwy::SupportedTargets(): it forgets a cap on the targets.
  configure();
  bool has = false;
  HWY_DYNAMIC_DISPATCH(HasInt16)(&has);
  return has;
}

void pack_rows_int16(Stored type, const void* from, int64_t stride, int64_t rows, int64_t k,
                     int64_t group, int64_t lanes, float norm, bool power_of_two, std::byte* out,
                     float* sums, int64_t sums_stride) {
  HWY_DYNAMIC_DISPATCH(PackRowsInt16)
  (type, from, stride, rows, k, group, lanes, norm, power_of_two, out, sums, sums_stride);
}

void pack_int16(const int16_t* values, const float* scales, int64_t rows, int64_t k, int64_t group,
                int64_t lanes, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(PackInt16)(values, scales, rows, k, group, lanes, out);
}

void multiply_packed_int16(const std::byte* a, const std::byte* b, int64_t k, int64_t group,
                           int64_t rows, int64_t columns, float* c, int64_t ldc, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(MultiplyPackedInt16)
  (a, b, k, group, rows, columns, c, ldc, accumulate);
}

namespace {

// The blocking of one product.
class Blocked {
 public:
  Blocked(const Product& p, float* y, int64_t ldy)
      : p_(p),
        y_(y),
        ldy_(ldy),
        tile_(p.panels == Panels::kBf16 ? GemmTile{kBf16Lanes, kBf16Lanes} : gemm_tile()) {
    const int64_t unit = std::max(p.k_unit, p.panels == Panels::kInt16  ? p.group
                                            : p.panels == Panels::kBf16 ? kBf16Lanes
                                                                        : 1);
    const int64_t panel_k = kPanelBytes / (tile_.columns * bytes_per_value()) / unit * unit;
    const int64_t most_k = std::max(unit, panel_k);
    const int64_t blocks = (p.k + most_k - 1) / most_k;
    block_k_ = round_up((p.k + blocks - 1) / blocks, unit);
    k_blocks_at_once_ =
        p.panels == Panels::kBf16 ? std::max<int64_t>(1, kMostKAtOnce / block_k_) : 1;
    const int64_t rows_in_cache = kBlockBytes / (block_k_ * bytes_per_value());
    block_rows_ = std::max(tile_.rows, rows_in_cache / tile_.rows * tile_.rows);
    block_columns_ = std::max(tile_.columns, rows_in_cache / tile_.columns * tile_.columns);
    // Rows whose packed form is kept at a time.
    const int64_t most_rows = kMostPackedA / (p.k * bytes_per_value());
    const int64_t chunks = (p.m + most_rows - 1) / std::max<int64_t>(1, most_rows);
    chunk_rows_ = round_up((p.m + chunks - 1) / std::max<int64_t>(1, chunks), tile_.rows);
  }

  void run() {
    for (int64_t row = 0; row < p_.m; row += chunk_rows_) {
      run_chunk(row, std::min(chunk_rows_, p_.m - row));
    }
  }

 private:
  int64_t bytes_per_value() const { return p_.panels == Panels::kFloat32 ? 4 : 2; }

  int64_t panel_bytes(int64_t k, int64_t lanes) const {
    switch (p_.panels) {
      case Panels::kInt16:
        return int16_panel_bytes(k, p_.group, lanes);
      case Panels::kBf16:
        return bf16_panel_bytes(k);
      case Panels::kFloat32:
        break;
    }
    return k * lanes * static_cast<int64_t>(sizeof(float));
  }

  void run_chunk(int64_t row, int64_t rows) {
    const int64_t a_panels = panels(rows, tile_.rows);
    const int64_t k_blocks = (p_.k + block_k_ - 1) / block_k_;
    const int64_t a_block = a_panels * panel_bytes(block_k_, tile_.rows);
    static thread_local Scratch scratch;
    std::byte* packed_a = scratch.get(a_block * k_blocks);
    parallel_tasks(a_panels, 1 + kGrainValues / (tile_.rows * p_.k), [&](int64_t panel) {
      const int64_t first = panel * tile_.rows;
      for (int64_t kb = 0; kb < k_blocks; ++kb) {
        const int64_t k = k_of(kb);
        p_.pack_a(row + first, std::min(tile_.rows, rows - first), kb * block_k_, k,
                  packed_a + kb * a_block + panel * panel_bytes(k, tile_.rows));
      }
    });
    // Few columns: threads share the rows as well, each packing b for its own.
    const int64_t column_blocks = (p_.n + block_columns_ - 1) / block_columns_;
    const int64_t row_blocks = (rows + block_rows_ - 1) / block_rows_;
    const int64_t wanted = (2 * max_threads() + column_blocks - 1) / column_blocks;
    const int64_t per_part =
        (row_blocks + std::min(wanted, row_blocks) - 1) / std::min(wanted, row_blocks);
    const int64_t part_rows = per_part * block_rows_;
    const int64_t parts = (rows + part_rows - 1) / part_rows;
    const int64_t products = std::min(block_columns_, p_.n) * std::min(part_rows, rows) * p_.k;
    parallel_tasks(column_blocks * parts, 1 + kGrainProducts / products, [&](int64_t task) {
      const int64_t first = task % parts * part_rows;
      run_part(row, first, std::min(part_rows, rows - first), task / parts * block_columns_,
               packed_a, a_block, k_blocks);
    });
  }

  // y of rows row + [first, first + count) and the block of columns from `column` on.
  void run_part(int64_t row, int64_t first, int64_t count, int64_t column,
                const std::byte* packed_a, int64_t a_block, int64_t k_blocks) {
    const int64_t columns = std::min(block_columns_, p_.n - column);
    static thread_local Scratch scratch;
    const int64_t b_block = panels(columns, tile_.columns) * panel_bytes(block_k_, tile_.columns);
    const int64_t at_once = std::min(k_blocks_at_once_, k_blocks);
    std::byte* packed_b = scratch.get(at_once * b_block);
    for (int64_t begin = 0; begin < k_blocks; begin += at_once) {
      const int64_t end = std::min(begin + at_once, k_blocks);
      for (int64_t kb = begin; kb < end; ++kb) {
        p_.pack_b(column, columns, kb * block_k_, k_of(kb), packed_b + (kb - begin) * b_block);
      }
      for (int64_t i = first; i < first + count; i += block_rows_) {
        const int64_t rows = std::min(block_rows_, first + count - i);
        for (int64_t kb = begin; kb < end; ++kb) {
          const int64_t k = k_of(kb);
          const std::byte* a =
              packed_a + kb * a_block + i / tile_.rows * panel_bytes(k, tile_.rows);
          multiply_block(a, packed_b + (kb - begin) * b_block, k, rows, columns,
                         y_ + (row + i) * ldy_ + column, kb > 0 || p_.accumulate);
        }
        if (end == k_blocks && p_.finish) p_.finish(row + i, rows, column, columns);
      }
    }
  }

  void multiply_block(const std::byte* a, const std::byte* b, int64_t k, int64_t rows,
                      int64_t columns, float* y, bool accumulate) const {
    switch (p_.panels) {
      case Panels::kInt16:
        return multiply_packed_int16(a, b, k, p_.group, rows, columns, y, ldy_, accumulate);
      case Panels::kBf16:
        return multiply_packed_bf16(a, b, bf16_panel_bytes(k), k, rows, columns, y, ldy_,
                                    accumulate);
      case Panels::kFloat32:
        return multiply_packed(reinterpret_cast<const float*>(a), reinterpret_cast<const float*>(b),
                               k, rows, columns, y, ldy_, accumulate);
    }
  }

  int64_t k_of(int64_t block) const { return std::min(block_k_, p_.k - block * block_k_); }

  const Product& p_;
  float* y_;
  int64_t ldy_;
  GemmTile tile_;
  int64_t block_k_ = 0, k_blocks_at_once_ = 1;
  int64_t block_rows_ = 0, block_columns_ = 0, chunk_rows_ = 0;
};

}  // namespace

void multiply(const Product& product, float* y, int64_t ldy) {
  if (product.m == 0 || product.n == 0) return;
  Blocked(product, y, ldy).run();
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
