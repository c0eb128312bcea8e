#include "kernels/cpu/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>
//
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace {

void RopeAdjacentRow(const float* x, const float* cos, const float* sin, int64_t pairs,
                     float* out) {
  ForEachVector(pairs, [&](int64_t i, auto d) HWY_ATTR {
    hn::Vec<decltype(d)> a;
    hn::Vec<decltype(d)> b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::LoadU(d, sin + i);
    hn::StoreInterleaved2(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)),
                          hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, out + 2 * i);
  });
}

void RopeHalvesRow(const float* x, const float* cos, const float* sin, int64_t pairs, float* out) {
  ForEachVector(pairs, [&](int64_t i, auto d) HWY_ATTR {
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + pairs + i);
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, out + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, out + pairs + i);
  });
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {

HWY_EXPORT(RopeAdjacentRow);
HWY_EXPORT(RopeHalvesRow);

void rope_adjacent_row(const float* x, const float* cos, const float* sin, int64_t pairs,
                       float* out) {
  HWY_DYNAMIC_DISPATCH(RopeAdjacentRow)(x, cos, sin, pairs, out);
}

void rope_halves_row(const float* x, const float* cos, const float* sin, int64_t pairs,
                     float* out) {
  HWY_DYNAMIC_DISPATCH(RopeHalvesRow)(x, cos, sin, pairs, out);
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
