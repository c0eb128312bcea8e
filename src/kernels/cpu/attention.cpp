#include "kernels/cpu/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/bf16_panels.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>
//
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace {

// Largest of scores[0, count), count > 0.
float RowMax(const float* scores, int64_t count) {
  float most = scores[0];
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (count >= lanes) {
    auto best = hn::LoadU(d, scores);
    for (; i + lanes <= count; i += lanes) best = hn::Max(best, hn::LoadU(d, scores + i));
    most = hn::GetLane(hn::MaxOfLanes(d, best));
  }
  for (; i < count; ++i) most = scores[i] > most ? scores[i] : most;
  return most;
}

// e^x for x <= 0 to 1e-7, 0 below -87; a NaN stays one. Half the work of hn::Exp, which takes any
// x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfNegative(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504F)));
  // ln 2 in two parts: n times the first has no rounding.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
  V p = hn::Set(d, 1.0F / 720);
  for (const float c : {1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) {
    p = hn::MulAdd(p, r, hn::Set(d, c));
  }
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  const V y = hn::Mul(p, hn::BitCast(d, power));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.0F)), hn::Zero(d), y);
}

// scores[i] = exp(scores[i] * scale - top); returns their sum.
float ExpRow(float* scores, int64_t count, float scale, float top) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  const auto offset = hn::Set(d, -top);
  auto sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto e = ExpOfNegative(d, hn::MulAdd(hn::LoadU(d, scores + i), factor, offset));
    hn::StoreU(e, d, scores + i);
    sums = hn::Add(sums, e);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  const hn::CappedTag<float, 1> one;
  for (; i < count; ++i) {
    const auto e = ExpOfNegative(
        one, hn::MulAdd(hn::LoadU(one, scores + i), hn::Set(one, scale), hn::Set(one, -top)));
    hn::StoreU(e, one, scores + i);
    sum += hn::GetLane(e);
  }
  return sum;
}

// e^x for x <= 0 to 4e-5, a fiftieth of bfloat16's rounding; 0 below -87.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoughExpOfNegative(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504F)));
  const V r = hn::NegMulAdd(n, hn::Set(d, 0.693147181F), x);
  V p = hn::MulAdd(r, hn::Set(d, 1.0F / 24), hn::Set(d, 1.0F / 6));
  for (const float c : {0.5F, 1.0F, 1.0F}) p = hn::MulAdd(p, r, hn::Set(d, c));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  const V y = hn::Mul(p, hn::BitCast(d, power));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.0F)), hn::Zero(d), y);
}

// One row of exp(scores * scale - top) as bfloat16 into an A-panel, 32 values for every
// `step_bytes`; zeros up to `width`, a multiple of 32. Returns their sum.
float ExpRowToPanel(const float* scores, int64_t count, int64_t width, float scale, float top,
                    std::byte* out, int64_t step_bytes) {
  const hn::CappedTag<float, 32> d;
  const hn::RebindToUnsigned<decltype(d)> bits;
  const hn::RebindToSigned<decltype(d)> positive;  // no e^x has the sign bit
  const hn::Rebind<uint16_t, decltype(d)> narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  const auto offset = hn::Set(d, -top);
  auto sums = hn::Zero(d);
  for (int64_t step = 0; step < width; step += 32, out += step_bytes) {
    auto* to = reinterpret_cast<uint16_t*>(out);
    if (step >= count) {
      std::fill(to, to + 32, uint16_t{0});
      continue;
    }
    for (int64_t i = 0; i < 32; i += lanes) {
      const int64_t left = std::clamp<int64_t>(count - step - i, 0, lanes);
      auto e = RoughExpOfNegative(d, hn::MulAdd(hn::LoadU(d, scores + step + i), factor, offset));
      if (left < lanes) e = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(left)), e);
      sums = hn::Add(sums, e);
      const auto u = hn::BitCast(bits, e);
      const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(bits, 1));
      const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(bits, 0x7FFF))));
      hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(positive, rounded)), narrow, to + i);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, sums));
}

void ScaleRow(float* row, int64_t count, float factor) {
  ForEachVector(count, [&](int64_t i, auto d) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), hn::Set(d, factor)), d, row + i);
  });
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {
namespace {

HWY_EXPORT(RowMax);
HWY_EXPORT(ExpRow);
HWY_EXPORT(ExpRowToPanel);
HWY_EXPORT(ScaleRow);

constexpr int64_t kTileKeys = kAttentionTileKeys;

// Values of a full tile of packed values, and room enough for one of packed keys.
int64_t packed_tile_size(int64_t depth) { return kTileKeys * round_up(depth, gemm_tile().columns); }

// Takes one tile of scores of a query into its running maximum: what was accumulated relative to
// the old one is rescaled.
void raise_top(const float* scores, int64_t seen, float scale, float& top, float& sum,
               float* accumulated, int64_t depth) {
  const float tile_top = HWY_DYNAMIC_DISPATCH(RowMax)(scores, seen) * scale;
  if (tile_top > top) {
    const float correction = std::exp(top - tile_top);  // 0 for the first tile
    sum *= correction;
    HWY_DYNAMIC_DISPATCH(ScaleRow)(accumulated, depth, correction);
    top = tile_top;
  }
}

// The products of a tile in one of the two kinds of panels. Packed operands live in memory counted
// in floats, of which bfloat16 panels need no more.
class TileProducts {
 public:
  explicit TileProducts(bool bf16) : bf16_(bf16), tile_(gemm_tile()) {}

  int64_t row_lanes() const { return bf16_ ? kBf16Lanes : tile_.rows; }

  void pack_rows_a(const float* from, int64_t stride, int64_t rows, int64_t k, float* out) const {
    if (bf16_) {
      pack_a_bf16(from, stride, rows, k, bytes(out));
    } else {
      pack_rows(Stored::kFloat32, from, stride, rows, k, tile_.rows, out);
    }
  }

  // Scores of query `i` become probabilities relative to `top`, those from `seen` on zeros, in the
  // form that multiply() takes as its first operand once finish_probabilities() was called. Returns
  // their sum.
  float probabilities(float* scores, int64_t i, int64_t seen, int64_t width, float scale, float top,
                      float* packed) const {
    if (bf16_) {
      return HWY_DYNAMIC_DISPATCH(ExpRowToPanel)(scores, seen, round_up(width, kBf16Lanes), scale,
                                                 top, bf16_panel_row(bytes(packed), i, width),
                                                 kBf16StepBytes);
    }
    std::fill(scores + seen, scores + width, 0.0F);
    return seen == 0 ? 0.0F : HWY_DYNAMIC_DISPATCH(ExpRow)(scores, seen, scale, top);
  }
  void finish_probabilities(const float* scores, int64_t rows, int64_t width, float* packed) const {
    if (!bf16_) pack_rows_a(scores, kTileKeys, rows, width, packed);
  }
  void pack_keys(const float* from, int64_t stride, int64_t keys, int64_t depth, float* out) const {
    if (bf16_) {
      pack_b_bf16(Stored::kFloat32, from, stride, keys, depth, bytes(out));
    } else {
      pack_rows(Stored::kFloat32, from, stride, keys, depth, tile_.columns, out);
    }
  }
  void pack_values(const float* from, int64_t stride, int64_t keys, int64_t depth,
                   float* out) const {
    if (bf16_) {
      pack_b_columns_bf16(from, stride, depth, keys, bytes(out));
    } else {
      pack_columns(from, stride, depth, keys, tile_.columns, out);
    }
  }

  // c[rows, columns] = a b; b was packed for a k of `packed_k`, at least `k`.
  void multiply(const float* a, const float* b, int64_t packed_k, int64_t k, int64_t rows,
                int64_t columns, float* c, int64_t ldc, bool accumulate) const {
    if (bf16_) {
      multiply_packed_bf16(bytes(a), bytes(b), bf16_panel_bytes(packed_k), k, rows, columns, c, ldc,
                           accumulate);
      return;
    }
    if (packed_k == k) return multiply_packed(a, b, k, rows, columns, c, ldc, accumulate);
    for (int64_t j = 0; j < columns; j += tile_.columns, b += packed_k * tile_.columns) {
      multiply_packed(a, b, k, rows, std::min(tile_.columns, columns - j), c + j, ldc, accumulate);
    }
  }

 private:
  static std::byte* bytes(float* p) { return reinterpret_cast<std::byte*>(p); }
  static const std::byte* bytes(const float* p) { return reinterpret_cast<const std::byte*>(p); }

  bool bf16_;
  GemmTile tile_;
};

}  // namespace

int64_t attention_packed_size(int64_t keys, int64_t depth) {
  return round_up(keys, kTileKeys) / kTileKeys * packed_tile_size(depth);
}

void attention_pack_tile(const AttentionHead& head, int64_t first) {
  const TileProducts products(head.bf16);
  const int64_t width = std::min(kTileKeys, head.keys - first);
  const int64_t at = first / kTileKeys * packed_tile_size(head.depth);
  products.pack_keys(head.k + first * head.k_stride, head.k_stride, width, head.depth,
                     head.packed_k + at);
  products.pack_values(head.v + first * head.v_stride, head.v_stride, width, head.depth,
                       head.packed_v + at);
}

void attention_tile(const AttentionHead& head, int64_t first, int64_t count) {
  const TileProducts products(head.bf16);
  const int64_t rows = round_up(count, products.row_lanes());
  const int64_t depth = round_up(head.depth, kBf16Lanes);
  std::array<float, kAttentionTileQueries> tops{};
  std::array<float, kAttentionTileQueries> sums{};
  tops.fill(-std::numeric_limits<float>::infinity());
  // Packed queries, scores, packed scores, sums of values.
  static thread_local Scratch scratch;
  const int64_t floats = rows * (depth + 2 * kTileKeys) + count * head.depth;
  auto* const packed_q =
      reinterpret_cast<float*>(scratch.get(floats * static_cast<int64_t>(sizeof(float))));
  float* const scores = packed_q + rows * depth;
  float* const packed_scores = scores + rows * kTileKeys;
  float* const accumulated = packed_scores + rows * kTileKeys;
  std::fill(accumulated, accumulated + count * head.depth, 0.0F);
  products.pack_rows_a(head.q + first * head.q_stride, head.q_stride, count, head.depth, packed_q);
  const int64_t last_key = head.causal ? std::min(head.valid_keys, first + count) : head.valid_keys;
  for (int64_t key = 0; key < last_key; key += kTileKeys) {
    // As the tile was packed, which may hold keys that are not seen.
    const int64_t packed = std::min(kTileKeys, head.keys - key);
    const int64_t width = std::min(kTileKeys, last_key - key);
    const int64_t at = key / kTileKeys * packed_tile_size(head.depth);
    products.multiply(packed_q, head.packed_k + at, head.depth, head.depth, count, width, scores,
                      kTileKeys, false);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t limit =
          head.causal ? std::min(head.valid_keys, first + i + 1) : head.valid_keys;
      const int64_t seen = std::clamp<int64_t>(limit - key, 0, width);
      float* const row = scores + i * kTileKeys;
      if (seen > 0) {
        raise_top(row, seen, head.scale, tops[i], sums[i], accumulated + i * head.depth,
                  head.depth);
      }
      sums[i] += products.probabilities(row, i, seen, width, head.scale, tops[i], packed_scores);
    }
    products.finish_probabilities(scores, count, width, packed_scores);
    products.multiply(packed_scores, head.packed_v + at, packed, width, count, head.depth,
                      accumulated, head.depth, true);
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* from = accumulated + i * head.depth;
    float* to = head.out + (first + i) * head.out_stride;
    // A query that sees no key gives zeros; a NaN sum stays one for the check that follows.
    const float inverse = sums[i] == 0.0F ? 0.0F : 1.0F / sums[i];
    for (int64_t d = 0; d < head.depth; ++d) to[d] = from[d] * inverse;
  }
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
