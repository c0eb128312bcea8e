#include "kernels/cpu/convert.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

void Bf16ToF32(const uint16_t* in, float* out, size_t count) {
  const hn::ScalableTag<uint32_t> wide;
  const hn::Rebind<uint16_t, decltype(wide)> narrow;
  const hn::Rebind<float, decltype(wide)> real;
  const size_t lanes = hn::Lanes(wide);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, in + i)));
    hn::StoreU(hn::BitCast(real, bits), real, out + i);
  }
  for (; i < count; ++i) {
    const uint32_t bits = uint32_t{in[i]} << 16;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

void F16ToF32(const uint16_t* in, float* out, size_t count) {
  const hn::ScalableTag<float> real;
  const hn::Rebind<hwy::float16_t, decltype(real)> half;
  const size_t lanes = hn::Lanes(real);
  const auto* halves = reinterpret_cast<const hwy::float16_t*>(in);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::PromoteTo(real, hn::LoadU(half, halves + i)), real, out + i);
  }
  const hn::CappedTag<float, 1> one;
  const hn::Rebind<hwy::float16_t, decltype(one)> one_half;
  for (; i < count; ++i)
    hn::StoreU(hn::PromoteTo(one, hn::LoadU(one_half, halves + i)), one, out + i);
}

template <class D>
auto RoundToBf16(D wide, hn::Vec<D> bits) {
  const hn::RebindToFloat<D> real;
  const auto last = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1));
  const auto rounded = hn::Add(bits, hn::Add(last, hn::Set(wide, 0x7FFF)));
  const auto is_nan =
      hn::MaskFromVec(hn::BitCast(wide, hn::VecFromMask(real, hn::IsNaN(hn::BitCast(real, bits)))));
  const auto quiet = hn::Or(bits, hn::Set(wide, 0x400000));
  return hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
}

void F32ToBf16(const float* in, uint16_t* out, size_t count) {
  const hn::ScalableTag<uint32_t> wide;
  const hn::Rebind<uint16_t, decltype(wide)> narrow;
  const auto* bits = reinterpret_cast<const uint32_t*>(in);
  const size_t lanes = hn::Lanes(wide);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const hn::RebindToSigned<decltype(wide)> positive;  // the high half is zero
    const auto rounded = hn::BitCast(positive, RoundToBf16(wide, hn::LoadU(wide, bits + i)));
    hn::StoreU(hn::DemoteTo(narrow, rounded), narrow, out + i);
  }
  const hn::CappedTag<uint32_t, 1> one;
  for (; i < count; ++i) {
    out[i] = static_cast<uint16_t>(hn::GetLane(RoundToBf16(one, hn::LoadU(one, bits + i))));
  }
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {
namespace {

HWY_EXPORT(Bf16ToF32);
HWY_EXPORT(F16ToF32);
HWY_EXPORT(F32ToBf16);

}  // namespace

void bf16_to_f32(const uint16_t* in, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(Bf16ToF32)(in, out, count);
}

void f16_to_f32(const uint16_t* in, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(F16ToF32)(in, out, count);
}

void f32_to_bf16(const float* in, uint16_t* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(F32ToBf16)(in, out, count);
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
