#include "kernels/cpu/top_k.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/top_k.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// The first index from `i` on whose value is above `limit` or NaN; `width` when there is none.
int64_t TopKNext(const float* x, int64_t i, int64_t width, float limit) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limits = hn::Set(d, limit);
  for (; i + lanes <= width; i += lanes) {
    const auto above = hn::Not(hn::Le(hn::LoadU(d, x + i), limits));
    const auto first = hn::FindFirstTrue(d, above);
    if (first >= 0) return i + first;
  }
  while (i < width && x[i] <= limit) ++i;
  return i;
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {

HWY_EXPORT(TopKNext);

// A heap of the k best so far with the worst of them on top, which is all that most values are
// compared with.
void top_k_row(const float* x, int64_t width, int64_t k, int32_t* indices) {
  const auto before = [x](int32_t a, int32_t b) {
    const bool a_nan = std::isnan(x[a]);
    const bool b_nan = std::isnan(x[b]);
    if (a_nan != b_nan) return a_nan;
    if (!a_nan && x[a] != x[b]) return x[a] > x[b];
    return a < b;
  };
  int32_t* const end = indices + k;
  std::iota(indices, end, 0);
  std::make_heap(indices, end, before);
  for (int64_t i = k; i < width && !std::isnan(x[indices[0]]); ++i) {
    i = HWY_DYNAMIC_DISPATCH(TopKNext)(x, i, width, x[indices[0]]);
    if (i == width) break;
    std::pop_heap(indices, end, before);
    end[-1] = static_cast<int32_t>(i);
    std::push_heap(indices, end, before);
  }
  std::sort_heap(indices, end, before);
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
