// Stored values, at any address, as float32. Included once per target, inside the usual guard.
#if defined(MERE_KERNELS_CPU_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MERE_KERNELS_CPU_STORED_INL_H_
#undef MERE_KERNELS_CPU_STORED_INL_H_
#else
#define MERE_KERNELS_CPU_STORED_INL_H_
#endif

#include <hwy/highway.h>
#include <type_traits>

#include "kernels/cpu/stored.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a matrix of a type holds.
template <Stored kType>
using StoredAs = std::conditional_t<
    kType == Stored::kFloat32, float,
    std::conditional_t<kType == Stored::kFloat16, hwy::float16_t, hwy::bfloat16_t>>;

// One value.
inline float ToFloat(const float* p) {
  float v;
  hwy::CopyBytes<sizeof v>(p, &v);
  return v;
}
inline float ToFloat(const hwy::bfloat16_t* p) {
  hwy::bfloat16_t v;
  hwy::CopyBytes<sizeof v>(p, &v);
  return hwy::F32FromBF16(v);
}
inline float ToFloat(const hwy::float16_t* p) {
  const hn::CappedTag<float, 1> one;
  hwy::float16_t v;
  hwy::CopyBytes<sizeof v>(p, &v);
  return hn::GetLane(
      hn::PromoteTo(one, hn::LoadU(hn::Rebind<hwy::float16_t, decltype(one)>(), &v)));
}

// Lanes(d) values.
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const hwy::float16_t* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), p));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const hwy::bfloat16_t* p) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Rebind<uint16_t, D> stored;
  const auto wide = hn::PromoteTo(bits, hn::LoadU(stored, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(wide));
}

}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
