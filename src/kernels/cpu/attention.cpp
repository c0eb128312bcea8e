#include "kernels/cpu/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/onednn.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>
//
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {

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

// e^x for x <= 0; a NaN stays one, which hn::Exp turns into 0.
template <class D, class V = hn::Vec<D>>
V ExpOrNaN(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
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
    const auto e = ExpOrNaN(d, hn::MulAdd(hn::LoadU(d, scores + i), factor, offset));
    hn::StoreU(e, d, scores + i);
    sums = hn::Add(sums, e);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  const hn::CappedTag<float, 1> one;
  for (; i < count; ++i) {
    const auto e = ExpOrNaN(
        one, hn::MulAdd(hn::LoadU(one, scores + i), hn::Set(one, scale), hn::Set(one, -top)));
    hn::StoreU(e, one, scores + i);
    sum += hn::GetLane(e);
  }
  return sum;
}

void ScaleRow(float* row, int64_t count, float factor) {
  ForEachVector(count, [&](int64_t i, auto d) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), hn::Set(d, factor)), d, row + i);
  });
}

}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {
namespace {

HWY_EXPORT(RowMax);
HWY_EXPORT(ExpRow);
HWY_EXPORT(ScaleRow);

constexpr int64_t kTileKeys = 256;

// Folds one tile of scores of a query into its running softmax: scores become probabilities
// relative to the new maximum, and the accumulated output is rescaled to it.
void fold_row(float* scores, int64_t seen, int64_t width, float scale, float& top, float& sum,
              float* accumulated, int64_t depth) {
  std::fill(scores + seen, scores + width, 0.0F);
  if (seen == 0) return;
  const float tile_top = HWY_DYNAMIC_DISPATCH(RowMax)(scores, seen) * scale;
  if (tile_top > top) {
    const float correction = std::exp(top - tile_top);  // 0 for the first tile
    sum *= correction;
    HWY_DYNAMIC_DISPATCH(ScaleRow)(accumulated, depth, correction);
    top = tile_top;
  }
  sum += HWY_DYNAMIC_DISPATCH(ExpRow)(scores, seen, scale, top);
}

}  // namespace

void attention_tile(const AttentionHead& head, int64_t first, int64_t count) {
  std::array<float, kAttentionTileQueries> tops{};
  std::array<float, kAttentionTileQueries> sums{};
  tops.fill(-std::numeric_limits<float>::infinity());
  std::vector<float> scores(static_cast<size_t>(count * kTileKeys));
  std::vector<float> accumulated(static_cast<size_t>(count * head.depth));
  const int64_t last_key = head.causal ? std::min(head.valid_keys, first + count) : head.valid_keys;
  for (int64_t key = 0; key < last_key; key += kTileKeys) {
    const int64_t width = std::min(kTileKeys, last_key - key);
    sgemm(true, count, width, head.depth, head.q + first * head.q_stride, head.q_stride,
          head.k + key * head.k_stride, head.k_stride, 0.0F, scores.data(), kTileKeys);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t limit =
          head.causal ? std::min(head.valid_keys, first + i + 1) : head.valid_keys;
      const int64_t seen = std::clamp<int64_t>(limit - key, 0, width);
      fold_row(scores.data() + i * kTileKeys, seen, width, head.scale, tops[i], sums[i],
               accumulated.data() + i * head.depth, head.depth);
    }
    sgemm(false, count, head.depth, width, scores.data(), kTileKeys, head.v + key * head.v_stride,
          head.v_stride, 1.0F, accumulated.data(), head.depth);
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* from = accumulated.data() + i * head.depth;
    float* to = head.out + (first + i) * head.out_stride;
    // A query that sees no key gives zeros; a NaN sum stays one for the check that follows.
    const float inverse = sums[i] == 0.0F ? 0.0F : 1.0F / sums[i];
    for (int64_t d = 0; d < head.depth; ++d) to[d] = from[d] * inverse;
  }
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
