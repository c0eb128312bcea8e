#include "kernels/cpu/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// The least and greatest value, NaN both when one is not finite. count is a multiple of 32, so
// there is no tail at vectors of up to 32 lanes.
void AffineRange(const float* x, int64_t count, float* range) {
  const hn::CappedTag<float, 32> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto least = hn::LoadU(d, x);
  auto most = least;
  auto zero = hn::Zero(d);  // turns to NaN
  for (int64_t i = 0; i < count; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    least = hn::Min(least, v);
    most = hn::Max(most, v);
    zero = hn::MulAdd(v, hn::Zero(d), zero);
  }
  const bool finite = hn::GetLane(hn::SumOfLanes(d, zero)) == 0.0F;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  range[0] = finite ? hn::GetLane(hn::MinOfLanes(d, least)) : kNan;
  range[1] = finite ? hn::GetLane(hn::MaxOfLanes(d, most)) : kNan;
}

void AffineCodes(const float* x, int64_t count, float scale, float bias, float most,
                 int32_t* codes) {
  const hn::CappedTag<float, 32> d;
  const hn::RebindToSigned<decltype(d)> whole;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    const auto steps = hn::Div(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, bias)), hn::Set(d, scale));
    const auto bounded = hn::Min(hn::Max(hn::Round(steps), hn::Zero(d)), hn::Set(d, most));
    hn::StoreU(hn::ConvertTo(whole, bounded), whole, codes + i);
  }
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {
namespace {

HWY_EXPORT(AffineRange);
HWY_EXPORT(AffineCodes);

void pack(const int32_t* codes, int64_t count, int bits, uint32_t* words) {
  uint64_t waiting = 0;
  int filled = 0;
  for (int64_t i = 0; i < count; ++i) {
    waiting |= static_cast<uint64_t>(codes[i]) << filled;
    filled += bits;
    if (filled < 32) continue;
    *words++ = static_cast<uint32_t>(waiting);
    waiting >>= 32;
    filled -= 32;
  }
}

}  // namespace

void f32_to_affine(const float* x, int bits, int64_t group_size, int64_t columns, uint32_t* codes,
                   float* scales, float* biases) {
  constexpr float kLeastScale = 1e-7F;
  const auto most_code = static_cast<float>((1 << bits) - 1);
  int32_t buffer[kMostGroup];
  for (int64_t group = 0; group * group_size < columns; ++group) {
    const float* from = x + group * group_size;
    uint32_t* to = codes + group * group_size / 32 * bits;
    float range[2];
    HWY_DYNAMIC_DISPATCH(AffineRange)(from, group_size, range);
    const auto [least, most] = range;
    if (std::isnan(least)) {
      scales[group] = biases[group] = least;
      std::fill_n(to, group_size / 32 * bits, 0U);
      continue;
    }
    float scale = std::max((most - least) / most_code, kLeastScale);
    float bias = least;
    if (bits > 1) {
      // The end farther from 0 is exact and gets code 0; the scale is adjusted so that 0 is exact,
      // too. One bit has no code to spare for that.
      const bool from_least = std::fabs(least) > std::fabs(most);
      const float edge = from_least ? least : most;
      if (!from_least) scale = -scale;
      const float edge_steps = std::rint(edge / scale);
      bias = edge_steps != 0.0F ? edge : 0.0F;
      if (edge_steps != 0.0F) scale = edge / edge_steps;
    }
    HWY_DYNAMIC_DISPATCH(AffineCodes)(from, group_size, scale, bias, most_code, buffer);
    pack(buffer, group_size, bits, to);
    scales[group] = scale;
    biases[group] = bias;
  }
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
