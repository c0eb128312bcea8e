#include "kernels/cpu/softmax.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>
//
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace {

// The greatest value. Where there is a NaN: any value.
float SoftmaxMax(const float* x, int64_t width) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto top = hn::Set(d, kLeast);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) top = hn::Max(top, hn::LoadU(d, x + i));
  float most = hn::GetLane(hn::MaxOfLanes(d, top));
  for (; i < width; ++i) most = std::max(most, x[i]);
  return most;
}

// out[i] = e^(x[i] - base); the sum of all. A NaN difference makes the sum NaN.
float SoftmaxExp(const float* x, float base, int64_t width, float* out) {
  const auto exp = [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, base));
    // Exp makes 0 of a NaN.
    const auto e = hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, v));
    hn::StoreU(e, d, out + i);
    return e;
  };
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) sum = hn::Add(sum, exp(d, i));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  const hn::CappedTag<float, 1> one;
  for (; i < width; ++i) total += hn::GetLane(exp(one, i));
  return total;
}

void SoftmaxRow(const float* x, int64_t width, float* out) {
  const float most = SoftmaxMax(x, width);
  // -Inf - -Inf would be NaN.
  const float base = most == -std::numeric_limits<float>::infinity() ? 0.0F : most;
  const float total = SoftmaxExp(x, base, width, out);
  const float factor = total == 0.0F ? 0.0F : 1.0F / total;
  ForEachVector(width, [&](int64_t i, auto d) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, out + i), hn::Set(d, factor)), d, out + i);
  });
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {

HWY_EXPORT(SoftmaxRow);

void softmax_row(const float* x, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRow)(x, width, out);
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
