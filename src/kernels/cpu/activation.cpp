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
namespace {

// x Phi(x). The smaller tail of Phi at |x| is erfc(z) / 2 = e^(-z^2) t P(t) with z = |x| / sqrt(2),
// t = 1 / (1 + 0.45 z) and P fitted to a relative error of 3e-7 for z up to 10.5, where float32
// ends: the tail keeps its digits, which 1 + erf(z) would cancel.
struct GeluErf {
  template <class D, class V = hn::Vec<D>>
  V operator()(D d, V x) const {
    const V t = hn::Div(hn::Set(d, 1.0F),
                        hn::MulAdd(hn::Abs(x), hn::Set(d, 0.318198052F), hn::Set(d, 1.0F)));
    V p = hn::Set(d, 0.0336448554F);
    for (const float c : {-0.1210264F, 0.105977753F, 0.0186872285F, 0.0951126434F, 0.113793753F,
                          0.126858561F, 0.126951764F}) {
      p = hn::MulAdd(p, t, hn::Set(d, c));
    }
    const V e = hn::Exp(d, hn::Mul(hn::Mul(x, hn::Set(d, -0.5F)), x));
    const V tail = hn::Mul(hn::Mul(p, t), e);
    const V phi = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0F), tail));
    return hn::Mul(x, phi);
  }
};

// (1 + tanh(u)) / 2 = 1 / (1 + e^(-2 u)), with the power of a negative number on either side of 0:
// Exp has no large ones.
struct GeluTanh {
  template <class D, class V = hn::Vec<D>>
  V operator()(D d, V x) const {
    const V one = hn::Set(d, 1.0F);
    // 2 sqrt(2 / pi) (1 + 0.044715 x^2)
    const V slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.0713548163F), hn::Set(d, 1.59576912F));
    const V e = hn::Exp(d, hn::Neg(hn::Mul(hn::Abs(x), slope)));
    const V part = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
    return hn::Mul(x, hn::Div(part, hn::Add(one, e)));
  }
};

template <class F>
void GeluRow(const float* x, int64_t width, float* out) {
  ForEachVector(width, [&](int64_t i, auto d)
                           HWY_ATTR { hn::StoreU(F()(d, hn::LoadU(d, x + i)), d, out + i); });
}

template <class F>
void GegluRow(const float* gate, const float* value, int64_t width, float* out) {
  ForEachVector(width, [&](int64_t i, auto d) HWY_ATTR {
    const auto g = F()(d, hn::LoadU(d, gate + i));
    hn::StoreU(hn::Mul(g, hn::LoadU(d, value + i)), d, out + i);
  });
}

void GeluErfRow(const float* x, int64_t width, float* out) { GeluRow<GeluErf>(x, width, out); }
void GeluTanhRow(const float* x, int64_t width, float* out) { GeluRow<GeluTanh>(x, width, out); }
void GegluErfRow(const float* gate, const float* value, int64_t width, float* out) {
  GegluRow<GeluErf>(gate, value, width, out);
}
void GegluTanhRow(const float* gate, const float* value, int64_t width, float* out) {
  GegluRow<GeluTanh>(gate, value, width, out);
}

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

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {

HWY_EXPORT(SiluRow);
HWY_EXPORT(SwigluRow);
HWY_EXPORT(GeluErfRow);
HWY_EXPORT(GeluTanhRow);
HWY_EXPORT(GegluErfRow);
HWY_EXPORT(GegluTanhRow);
HWY_EXPORT(GatedResidualRow);
HWY_EXPORT(AddRow);

void silu_row(const float* x, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluRow)(x, width, out);
}

void swiglu_row(const float* gate, const float* value, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(SwigluRow)(gate, value, width, out);
}

void gelu_erf_row(const float* x, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(GeluErfRow)(x, width, out);
}

void gelu_tanh_row(const float* x, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(GeluTanhRow)(x, width, out);
}

void geglu_erf_row(const float* gate, const float* value, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(GegluErfRow)(gate, value, width, out);
}

void geglu_tanh_row(const float* gate, const float* value, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(GegluTanhRow)(gate, value, width, out);
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
