// SIMD helpers shared by the Highway kernels. Included once per target, inside the usual guard.
#if defined(MERE_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MERE_KERNELS_CPU_MATH_INL_H_
#undef MERE_KERNELS_CPU_MATH_INL_H_
#else
#define MERE_KERNELS_CPU_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x / (1 + e^-x)
template <class D, class V = hn::Vec<D>>
V Silu(D d, V x) {
  // Where e^-x leaves float32 the quotient is 0; beyond e^88 it would not be for the largest x.
  const V e = hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0F)));
  const V y = hn::Div(x, hn::Add(hn::Set(d, 1.0F), e));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -100.0F)), hn::Mul(x, hn::Zero(d)), y);
}

// Calls body(offset, tag) over [0, count): full vectors, then single lanes.
template <class Body>
void ForEachVector(int64_t count, const Body& body) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, d);
  for (; i < count; ++i) body(i, one);
}

}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
