#include "kernels/cpu/activation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>
//
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {

void SiluRow(const float* x, int64_t width, float* out) {
  ForEachVector(width, [&](int64_t i, auto d)
                           HWY_ATTR { hn::StoreU(Silu(d, hn::LoadU(d, x + i)), d, out + i); });
}

void SwigluRow(const float* gate, const float* value, int64_t width, float* out) {
  ForEachVector(width, [&](int64_t i, auto d) HWY_ATTR {
    const auto g = Silu(d, hn::LoadU(d, gate + i));
    hn::StoreU(hn::Mul(g, hn::LoadU(d, value + i)), d, out + i);
  });
}

void GatedResidualRow(const float* residual, const float* gate, const float* x, int64_t width,
                      float* out) {
  ForEachVector(width, [&](int64_t i, auto d) HWY_ATTR {
    const auto r = hn::LoadU(d, residual + i);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, gate + i), hn::LoadU(d, x + i), r), d, out + i);
  });
}

void AddRow(const float* bias, int64_t width, float* y) {
  ForEachVector(width, [&](int64_t i, auto d) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, bias + i)), d, y + i);
  });
}

}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {

HWY_EXPORT(SiluRow);
HWY_EXPORT(SwigluRow);
HWY_EXPORT(GatedResidualRow);
HWY_EXPORT(AddRow);

void silu_row(const float* x, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluRow)(x, width, out);
}

void swiglu_row(const float* gate, const float* value, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(SwigluRow)(gate, value, width, out);
}

void gated_residual_row(const float* residual, const float* gate, const float* x, int64_t width,
                        float* out) {
  HWY_DYNAMIC_DISPATCH(GatedResidualRow)(residual, gate, x, width, out);
}

void add_row(const float* bias, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(AddRow)(bias, width, y);
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
