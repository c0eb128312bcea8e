#include "kernels/cpu/stored.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/stored.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Codes are unpacked 32 at a time: 4 * bits bytes hold them, whatever the width.
constexpr int64_t kAtOnce = 32;

#if HWY_TARGET != HWY_SCALAR
// Every byte split into its low and its high `kBits` bits, in order; the first 16 results.
template <int kBits, class D, class V = hn::Vec<D>>
HWY_INLINE void Split(D d, V v, V* low_half, V* high_half) {
  const hn::Repartition<uint16_t, D> d16;
  const auto mask = hn::Set(d, static_cast<uint8_t>((1 << kBits) - 1));
  const auto low = hn::And(v, mask);
  const auto high = hn::And(hn::BitCast(d, hn::ShiftRight<kBits>(hn::BitCast(d16, v))), mask);
  *low_half = hn::InterleaveLower(d, low, high);
  *high_half = hn::InterleaveUpper(d, low, high);
}

template <int kBits>
void Unpack32(const uint8_t* from, uint8_t* out) {
  const hn::Full128<uint8_t> d;
  HWY_ALIGN uint8_t bytes[16] = {};
  std::memcpy(bytes, from, 4 * kBits);
  auto v = hn::Load(d, bytes);
  auto upper = v;
  if constexpr (kBits == 1) Split<4>(d, v, &v, &upper);
  if constexpr (kBits == 1) Split<2>(d, v, &v, &upper);
  if constexpr (kBits == 2) Split<4>(d, v, &v, &upper);
  Split<kBits>(d, v, &v, &upper);
  hn::StoreU(v, d, out);
  hn::StoreU(upper, d, out + 16);
}
#endif

// Codes that may cross bytes.
void Unpack32Crossing(const uint8_t* from, int bits, uint8_t* out) {
  const uint32_t mask = (1U << bits) - 1;
  for (int i = 0; i < kAtOnce; ++i) {
    const int bit = i * bits;
    uint32_t window = from[bit / 8];
    if (bit % 8 + bits > 8) window |= uint32_t{from[bit / 8 + 1]} << 8;
    out[i] = static_cast<uint8_t>(window >> (bit % 8) & mask);
  }
}

void Unpack32(const uint8_t* from, int bits, uint8_t* out) {
  switch (bits) {
#if HWY_TARGET != HWY_SCALAR
    case 1:
      return Unpack32<1>(from, out);
    case 2:
      return Unpack32<2>(from, out);
    case 4:
      return Unpack32<4>(from, out);
#endif
    default:
      return Unpack32Crossing(from, bits, out);
  }
}

void UnpackCodes(const uint8_t* from, int bits, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; i += kAtOnce, from += 4 * bits) Unpack32(from, bits, out + i);
}

// `group` codes from `from` on to code * scale + bias.
void GroupToF32(const uint8_t* from, int bits, int64_t group, float scale, float bias, float* out) {
  const hn::CappedTag<float, 8> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN uint8_t codes[kAtOnce];
  for (int64_t i = 0; i < group; i += kAtOnce, from += 4 * bits) {
    Unpack32(from, bits, codes);
    for (int64_t j = 0; j < kAtOnce; j += lanes) {
      const auto code = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(narrow, codes + j)));
      hn::StoreU(hn::MulAdd(code, hn::Set(d, scale), hn::Set(d, bias)), d, out + i + j);
    }
  }
}

void CodesToI16(const uint8_t* from, int bits, int64_t count, int16_t subtract, int16_t* out) {
  const hn::CappedTag<int16_t, 16> d;
  const hn::Rebind<uint8_t, decltype(d)> narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN uint8_t codes[kAtOnce];
  for (int64_t i = 0; i < count; i += kAtOnce, from += 4 * bits) {
    Unpack32(from, bits, codes);
    for (int64_t j = 0; j < kAtOnce; j += lanes) {
      const auto code = hn::PromoteTo(d, hn::LoadU(narrow, codes + j));
      hn::StoreU(hn::Sub(code, hn::Set(d, subtract)), d, out + i + j);
    }
  }
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {
namespace {

HWY_EXPORT(GroupToF32);
HWY_EXPORT(UnpackCodes);
HWY_EXPORT(CodesToI16);

int16_t code_middle(int bits) { return static_cast<int16_t>(bits == 1 ? 0 : 1 << (bits - 1)); }

const uint8_t* codes_of(const AffineMatrix& w, int64_t row, int64_t column) {
  return static_cast<const uint8_t*>(w.codes) + row * w.stride * 4 + column * w.bits / 8;
}

float value_of(const StoredMatrix& m, int64_t row, int64_t column) {
  float value = 0;
  if (m.type == Stored::kFloat32) {
    std::memcpy(&value, m.at(row, column), sizeof value);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, m.at(row, column), sizeof half);
  const auto widen = m.type == Stored::kBFloat16 ? &bf16_to_f32 : &f16_to_f32;
  widen(&half, &value, 1);
  return value;
}

}  // namespace

void affine_to_f32(const uint32_t* codes, int bits, const float* scales, const float* biases,
                   int64_t group_size, int64_t columns, float* out) {
  std::vector<uint8_t> unpacked(static_cast<size_t>(columns));
  HWY_DYNAMIC_DISPATCH(UnpackCodes)
  (reinterpret_cast<const uint8_t*>(codes), bits, columns, unpacked.data());
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t group = i / group_size;
    out[i] = static_cast<float>(unpacked[i]) * scales[group] + biases[group];
  }
}

void affine_row_to_f32(const AffineMatrix& w, int64_t row, int64_t first, int64_t count,
                       float* out) {
  for (int64_t k = first; k < first + count; k += w.group, out += w.group) {
    const int64_t group = k / w.group;
    HWY_DYNAMIC_DISPATCH(GroupToF32)
    (codes_of(w, row, k), w.bits, w.group, value_of(w.scales, row, group),
     value_of(w.biases, row, group), out);
  }
}

void affine_row_to_i16(const AffineMatrix& w, int64_t row, int64_t first, int64_t count,
                       int16_t* out, float* scales) {
  HWY_DYNAMIC_DISPATCH(CodesToI16)
  (codes_of(w, row, first), w.bits, count, code_middle(w.bits), out);
  for (int64_t g = 0; g < count / w.group; ++g) {
    scales[g] = value_of(w.scales, row, first / w.group + g);
  }
}

void affine_row_offsets(const AffineMatrix& w, int64_t row, int64_t first, int64_t count,
                        float* out) {
  const auto middle = static_cast<float>(code_middle(w.bits));
  for (int64_t g = 0; g < count; ++g) {
    out[g] = value_of(w.biases, row, first + g) + middle * value_of(w.scales, row, first + g);
  }
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
