#include "kernels/cpu/few_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/few_rows.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>
//
#include "kernels/cpu/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

constexpr int64_t kGrainBytes = 32768;    // least bytes of weights worth a thread
constexpr int64_t kPrefetchBytes = 4096;  // ahead of the weights in use; rows follow each other

using Floats = hn::CappedTag<float, 8>;
// Exact: no target has vectors of unknown length.
constexpr int64_t kLanes = hn::MaxLanes(Floats());

const uint8_t* RowOf(const StoredMatrix& w, int64_t row) {
  return static_cast<const uint8_t*>(w.at(row, 0));
}

template <Stored kType>
float LoadOne(const uint8_t* from) {
  return ToFloat(reinterpret_cast<const StoredAs<kType>*>(from));
}

template <Stored kType>
HWY_INLINE hn::Vec<Floats> LoadStored(const uint8_t* from) {
  return LoadWide(Floats(), reinterpret_cast<const StoredAs<kType>*>(from));
}

template <Stored kType>
void WidenAs(const uint8_t* from, int64_t count, float* out) {
  const Floats d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(LoadStored<kType>(from + i * stored_size(kType)), d, out + i);
  }
  for (; i < count; ++i) out[i] = LoadOne<kType>(from + i * stored_size(kType));
}

void Widen(const StoredMatrix& w, int64_t row, int64_t count, float* out) {
  const uint8_t* from = RowOf(w, row);
  switch (w.type) {
    case Stored::kFloat32:
      return WidenAs<Stored::kFloat32>(from, count, out);
    case Stored::kFloat16:
      return WidenAs<Stored::kFloat16>(from, count, out);
    case Stored::kBFloat16:
      return WidenAs<Stored::kBFloat16>(from, count, out);
  }
}

// Rows of W that go through all rows of x before the next ones come from memory.
constexpr int64_t kTogether = 16;

// --- dense ---

// Accumulators of one value of y. The same for every kW, so that a value is summed in one order
// wherever the work is split.
template <int kX>
constexpr int kUnroll = kX >= 4 ? 1 : 2;

// Rows of W in flight, enough for eight independent sums.
template <int kX>
constexpr int kDenseRows = kX == 1 ? 4 : 2;

// y[r][j] for kX rows of x and kW rows of W.
template <Stored kType, int kX, int kW>
void DenseTile(const FewRows& p, const float* x, const uint8_t* w, int64_t w_stride, float* y) {
  constexpr int kU = kUnroll<kX>;
  constexpr int64_t kSize = stored_size(kType);
  const Floats d;
  hn::Vec<Floats> sums[kW][kX][kU];
  HWY_UNROLL(16)
  for (auto& of_w : sums) {
    HWY_UNROLL(16)
    for (auto& of_x : of_w) {
      HWY_UNROLL(16)
      for (auto& sum : of_x) sum = hn::Zero(d);
    }
  }
  int64_t i = 0;
  for (; i + kU * kLanes <= p.k; i += kU * kLanes) {
    HWY_UNROLL(16)
    for (int j = 0; j < kW; ++j) {
      HWY_UNROLL(16)
      for (int u = 0; u < kU; ++u) {
        const int64_t at = i + u * kLanes;
        const auto weights = LoadStored<kType>(w + j * w_stride + at * kSize);
        HWY_UNROLL(16)
        for (int r = 0; r < kX; ++r) {
          sums[j][r][u] = hn::MulAdd(weights, hn::LoadU(d, x + r * p.ldx + at), sums[j][r][u]);
        }
      }
      hwy::Prefetch(w + j * w_stride + i * kSize + kPrefetchBytes);
    }
  }
  HWY_UNROLL(16)
  for (int j = 0; j < kW; ++j) {
    HWY_UNROLL(16)
    for (int r = 0; r < kX; ++r) {
      HWY_UNROLL(16)
      for (int u = 1; u < kU; ++u) sums[j][r][0] = hn::Add(sums[j][r][0], sums[j][r][u]);
      float total = hn::GetLane(hn::SumOfLanes(d, sums[j][r][0]));
      for (int64_t t = i; t < p.k; ++t) {
        total += LoadOne<kType>(w + j * w_stride + t * kSize) * x[r * p.ldx + t];
      }
      y[r * p.ldy + j] = total;
    }
  }
}

template <Stored kType, int kX>
void DenseRows(const FewRows& p, const StoredMatrix& w, int64_t x_row, int64_t begin, int64_t end) {
  constexpr int kW = kDenseRows<kX>;
  const float* x = p.x + x_row * p.ldx;
  float* y = p.y + x_row * p.ldy;
  const int64_t stride = w.stride * stored_size(kType);
  int64_t row = begin;
  for (; row + kW <= end; row += kW) DenseTile<kType, kX, kW>(p, x, RowOf(w, row), stride, y + row);
  for (; row < end; ++row) DenseTile<kType, kX, 1>(p, x, RowOf(w, row), stride, y + row);
}

// Calls f with 4, 2 or 1 as a constant for tiles of rows of x that make up `rows`.
template <class F>
HWY_INLINE void ForTiles(int64_t rows, const F& f) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) f(std::integral_constant<int, 4>(), row);
  if ((rows & 2) != 0) f(std::integral_constant<int, 2>(), row);
  if ((rows & 1) != 0) f(std::integral_constant<int, 1>(), row + (rows & 2));
}

template <Stored kType>
void Dense(const FewRows& p, const StoredMatrix& w) {
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / (p.k * stored_size(kType)));
  parallel_for(p.n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += kTogether) {
      const int64_t stop = std::min(end, row + kTogether);
      ForTiles(p.rows, [&](auto tile, int64_t x_row) HWY_ATTR {
        DenseRows<kType, decltype(tile)::value>(p, w, x_row, row, stop);
      });
    }
  });
}

void FewRowsDense(const FewRows& p, const StoredMatrix& w) {
  switch (w.type) {
    case Stored::kFloat32:
      return Dense<Stored::kFloat32>(p, w);
    case Stored::kFloat16:
      return Dense<Stored::kFloat16>(p, w);
    case Stored::kBFloat16:
      return Dense<Stored::kBFloat16>(p, w);
  }
}

#if HWY_TARGET == HWY_SCALAR

// For processors without vectors of bytes: every weight as it is written down, in float32.
void FewRowsAffine(const FewRows& p, const AffineMatrix& w, FixedPoint /*precision*/) {
  const int64_t groups = p.k / w.group;
  parallel_for(p.n, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scales(static_cast<size_t>(groups));
    std::vector<float> biases(scales.size());
    for (int64_t row = begin; row < end; ++row) {
      Widen(w.scales, row, groups, scales.data());
      Widen(w.biases, row, groups, biases.data());
      const auto* codes = static_cast<const uint8_t*>(w.codes) + row * w.stride * 4;
      for (int64_t r = 0; r < p.rows; ++r) {
        float total = 0;
        for (int64_t i = 0; i < p.k; ++i) {
          const int64_t bit = i * w.bits;
          uint32_t code = codes[bit / 8];
          if (bit % 8 + w.bits > 8) code |= uint32_t{codes[bit / 8 + 1]} << 8;
          code = code >> (bit % 8) & ((1U << w.bits) - 1);
          const auto group = static_cast<size_t>(i / w.group);
          total += p.x[r * p.ldx + i] * (static_cast<float>(code) * scales[group] + biases[group]);
        }
        p.y[r * p.ldy + row] = total;
      }
    }
  });
}

#else

// --- codes ---

using Bytes = hn::Repartition<uint8_t, Floats>;
using Words = hn::Repartition<uint16_t, Floats>;
using Shorts = hn::RebindToSigned<Words>;
using Ints = hn::RebindToSigned<hn::Repartition<uint32_t, Floats> >;

constexpr int64_t kWords = 2 * kLanes;  // 16-bit lanes

// How a row of codes is read: block by block, each `kPlanes` vectors of codes as int16. When the
// width divides 16, a block is one vector of words and plane p holds the p-th code of every word;
// else planes hold codes in order.
template <int kBits>
class Codes {
 public:
  static constexpr bool kWhole = 16 % kBits == 0;
  static constexpr int kInWord = kWhole ? 16 / kBits : 1;
  static constexpr int kPlanes = kWhole ? kInWord : static_cast<int>(32 / kWords);
  static constexpr int64_t kBlock = kPlanes * kWords;  // codes
  static constexpr int64_t kBlockBytes = kBlock * kBits / 8;
  static constexpr int64_t kPlaneBytes = kWhole ? 0 : kWords * kBits / 8;
  static constexpr int64_t kTouched =  // bytes that reading a block touches
      kWhole ? kBlockBytes : (kPlanes - 1) * kPlaneBytes + 16;

  Codes() : gather_(hn::Zero(Bytes())), factor_(hn::Zero(Words())) {
    if constexpr (!kWhole) {
      uint8_t bytes[2 * kWords];
      uint16_t factors[kWords];
      for (int64_t i = 0; i < kWords; ++i) {
        bytes[2 * i] = static_cast<uint8_t>(i * kBits / 8);
        bytes[2 * i + 1] = static_cast<uint8_t>(i * kBits / 8 + 1);
        factors[i] = static_cast<uint16_t>(1U << (16 - kBits - i * kBits % 8));
      }
      gather_ = hn::LoadU(Bytes(), bytes);
      factor_ = hn::LoadU(Words(), factors);
    }
  }

  // Plane `plane` of the block at `from`. Called in order; `words` carries what is left.
  HWY_INLINE hn::Vec<Shorts> Plane(const uint8_t* from, int plane, hn::Vec<Words>& words) const {
    const Words d;
    auto codes = words;
    if constexpr (kWhole) {
      if (plane == 0) words = hn::BitCast(d, hn::LoadU(Bytes(), from));
      codes = plane + 1 < kPlanes ? hn::And(words, hn::Set(d, (1U << kBits) - 1)) : words;
      words = hn::ShiftRight<kBits>(words);
    } else {
      // The two bytes with a code in each lane, then that code moved to the top and down again.
      const auto bytes = hn::LoadDup128(Bytes(), from + plane * kPlaneBytes);
      const auto pairs = hn::BitCast(d, hn::TableLookupBytes(bytes, gather_));
      codes = hn::ShiftRight<16 - kBits>(hn::Mul(pairs, factor_));
    }
    return hn::BitCast(Shorts(), codes);
  }

 private:
  hn::Vec<Bytes> gather_;
  hn::Vec<Words> factor_;
};

// sum[i] + a[2i] b[2i] + a[2i + 1] b[2i + 1]
HWY_INLINE hn::Vec<Ints> AddPairs(hn::Vec<Shorts> a, hn::Vec<Shorts> b, hn::Vec<Ints> sum) {
  const Ints d;
#if HWY_ARCH_X86
  auto unused = hn::Zero(d);
  return hn::ReorderWidenMulAccumulate(d, a, b, sum, unused);
#else
  const hn::Half<Shorts> half;
  const auto low =
      hn::Mul(hn::PromoteTo(d, hn::LowerHalf(half, a)), hn::PromoteTo(d, hn::LowerHalf(half, b)));
  const auto high =
      hn::Mul(hn::PromoteTo(d, hn::UpperHalf(half, a)), hn::PromoteTo(d, hn::UpperHalf(half, b)));
  return hn::Add(sum, hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)));
#endif
}

// --- x in fixed point ---

// All rows of x, in the order in which codes are read: when a word holds several codes, vectors of
// words of x are split likewise.
struct FixedX {
  FixedX(const FewRows& p, int64_t group, int64_t block, int in_word, int parts)
      : in_word(in_word), parts(parts), groups(p.k / group) {
    row_stride = (p.k + block - 1) / block * block * parts;
    group_stride = groups + kLanes;  // a vector of scales is read from any group on
    values.resize(static_cast<size_t>(p.rows * row_stride));
    scales.resize(static_cast<size_t>(p.rows * group_stride));
    sums.resize(scales.size());
  }

  int64_t in_word, parts, groups;
  std::vector<int16_t> values;      // [row][vector of words][in_word][part][kWords]
  std::vector<float> scales, sums;  // [row][group_stride]
  int64_t row_stride, group_stride;
};

// x = integers * scale; returns the scale. `most` is the largest |x|, finite.
float ToIntegers(const float* x, int64_t count, float most, FixedPoint precision, int32_t* out) {
  const Floats d;
  // Below this the inverse is not finite; such values keep fewer digits.
  const float range = std::max(most, 0x1p-90F);
  float scale = range / 32767.0F;
  float inverse = 32767.0F / range;
  if (precision == FixedPoint::kInt30) {
    // A power of two, so that only digits below the last are lost.
    const int exponent = std::ilogb(range);
    scale = std::ldexp(1.0F, exponent - 29);
    inverse = std::ldexp(1.0F, 29 - exponent);
  }
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto v = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, inverse));
    hn::StoreU(hn::NearestInt(v), Ints(), out + i);
  }
  return scale;
}

void FixGroup(const float* x, int64_t group, int64_t size, FixedPoint precision, int64_t row,
              FixedX& out) {
  const Floats d;
  auto sum = hn::Zero(d);
  auto most = hn::Zero(Ints());  // bits of the largest |x|: infinities and NaN are above all others
  for (int64_t i = 0; i < size; i += kLanes) {
    const auto v = hn::LoadU(d, x + i);
    sum = hn::Add(sum, v);
    most = hn::Max(most, hn::BitCast(Ints(), hn::Abs(v)));
  }
  const float top = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(Ints(), most)));
  const int64_t at = row * out.group_stride + group;
  out.sums[static_cast<size_t>(at)] = hn::GetLane(hn::SumOfLanes(d, sum));
  if (!std::isfinite(top)) {
    out.scales[static_cast<size_t>(at)] = std::numeric_limits<float>::quiet_NaN();
    return;  // the integers are zeros already
  }
  int32_t integers[kMostGroup];
  out.scales[static_cast<size_t>(at)] = ToIntegers(x, size, top, precision, integers);
  // The high part first; the low one is 15 bits without a sign.
  const int shift = out.parts == 2 ? 15 : 0;
  const int64_t in_word = out.in_word;
  const int64_t end = (group + 1) * size / in_word;
  const int32_t* from = integers;
  for (int64_t word = group * size / in_word, count = 0; word < end; word += count) {
    const int64_t lane = word % kWords;
    count = std::min(kWords - lane, end - word);
    int16_t* to =
        out.values.data() + row * out.row_stride + (word - lane) * in_word * out.parts + lane;
    for (int64_t p = 0; p < in_word; ++p) {
      for (int64_t i = 0; i < count; ++i) {
        to[i] = static_cast<int16_t>(from[i * in_word + p] >> shift);
      }
      to += kWords;
      if (out.parts == 1) continue;
      for (int64_t i = 0; i < count; ++i) {
        to[i] = static_cast<int16_t>(from[i * in_word + p] & 0x7FFF);
      }
      to += kWords;
    }
    from += count * in_word;
  }
}

// --- products ---

// products[r][g] = scales[g] x.scales[r][g], and sums[r] = lanes of the part of y that the biases
// make. Reads whole vectors.
template <Stored kType, int kX>
HWY_INLINE void ScaleGroups(const uint8_t* scales, const uint8_t* biases, const FixedX& x,
                            int64_t x_row, float* products, hn::Vec<Floats>* sums) {
  const Floats d;
  HWY_UNROLL(16)
  for (int r = 0; r < kX; ++r) sums[r] = hn::Zero(d);
  for (int64_t g = 0; g < x.groups; g += kLanes) {
    const auto scale = LoadStored<kType>(scales + g * stored_size(kType));
    const auto bias = LoadStored<kType>(biases + g * stored_size(kType));
    HWY_UNROLL(16)
    for (int r = 0; r < kX; ++r) {
      const int64_t at = (x_row + r) * x.group_stride + g;
      const auto product = hn::Mul(scale, hn::LoadU(d, x.scales.data() + at));
      hn::StoreU(product, d, products + r * x.group_stride + g);
      sums[r] = hn::MulAdd(bias, hn::LoadU(d, x.sums.data() + at), sums[r]);
    }
  }
}

// The same for a row of W. `scratch` holds [2][group_stride] floats, zeros past the last group.
template <int kX>
HWY_INLINE void ScaleRow(const AffineMatrix& w, int64_t w_row, const FixedX& x, int64_t x_row,
                         float* scratch, float* products, hn::Vec<Floats>* sums) {
  const bool in_place = w.scales.type == w.biases.type && x.groups % kLanes == 0;
  const uint8_t* scales = RowOf(w.scales, w_row);
  const uint8_t* biases = RowOf(w.biases, w_row);
  if (in_place && w.scales.type == Stored::kBFloat16) {
    return ScaleGroups<Stored::kBFloat16, kX>(scales, biases, x, x_row, products, sums);
  }
  if (in_place && w.scales.type == Stored::kFloat16) {
    return ScaleGroups<Stored::kFloat16, kX>(scales, biases, x, x_row, products, sums);
  }
  if (!in_place) {
    Widen(w.scales, w_row, x.groups, scratch);
    Widen(w.biases, w_row, x.groups, scratch + x.group_stride);
    scales = reinterpret_cast<const uint8_t*>(scratch);
    biases = reinterpret_cast<const uint8_t*>(scratch + x.group_stride);
  }
  ScaleGroups<Stored::kFloat32, kX>(scales, biases, x, x_row, products, sums);
}

// The group of each lane of a block's sums, counted from the first group of the block.
hn::Vec<Ints> GroupOfLane(int64_t group, int64_t in_word) {
  int32_t groups[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) groups[i] = static_cast<int32_t>(2 * i * in_word / group);
  return hn::LoadU(Ints(), groups);
}

template <int kBits, int kParts, int kX>
class AffineRow {
  using Format = Codes<kBits>;

 public:
  // `scratch` holds [2 + kX][group_stride] zeros.
  AffineRow(const AffineMatrix& w, const FixedX& x, int64_t k, int64_t x_row, float* scratch)
      : w_(w),
        x_(x),
        x_row_(x_row),
        values_(x.values.data() + x_row * x.row_stride),
        scratch_(scratch),
        products_(scratch + 2 * x.group_stride),
        row_bytes_(k * kBits / 8),
        group_log2_(std::countr_zero(static_cast<uint64_t>(w.group))),
        group_of_lane_(hn::IndicesFromVec(Floats(), GroupOfLane(w.group, x.in_word))) {}

  void Multiply(int64_t w_row, float* y, int64_t ldy) {
    hn::Vec<Floats> sums[kX];
    ScaleRow<kX>(w_, w_row, x_, x_row_, scratch_, products_, sums);
    const auto* codes = static_cast<const uint8_t*>(w_.codes) + w_row * w_.stride * 4;
    if constexpr (Format::kBlock <= kLeastGroup) {
      AddBlocks<true>(codes, sums);
    } else if constexpr (Format::kBlock > kMostGroup) {
      AddBlocks<false>(codes, sums);
    } else if (Format::kBlock <= w_.group) {
      AddBlocks<true>(codes, sums);
    } else {
      AddBlocks<false>(codes, sums);
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kX; ++r) y[r * ldy] = hn::GetLane(hn::SumOfLanes(Floats(), sums[r]));
  }

 private:
  // kOneGroup: no block is wider than a group.
  template <bool kOneGroup>
  HWY_INLINE void AddBlocks(const uint8_t* codes, hn::Vec<Floats>* sums) const {
    const int64_t whole = row_bytes_ < Format::kTouched
                              ? 0
                              : (row_bytes_ - Format::kTouched) / Format::kBlockBytes + 1;
    const int64_t blocks = (row_bytes_ + Format::kBlockBytes - 1) / Format::kBlockBytes;
    uint8_t copy[64];
    for (int64_t block = 0; block < blocks; ++block, codes += Format::kBlockBytes) {
      hwy::Prefetch(codes + kPrefetchBytes);
      const uint8_t* from = codes;
      // The last blocks are copied where they can be read as a whole: nothing is read past W.
      if (block >= whole) {
        std::memset(copy, 0, sizeof copy);
        const int64_t left = row_bytes_ - block * Format::kBlockBytes;
        std::memcpy(copy, codes, static_cast<size_t>(std::min(left, Format::kTouched)));
        from = copy;
      }
      AddBlock<kOneGroup>(from, block, sums);
    }
  }

  template <bool kOneGroup>
  HWY_INLINE void AddBlock(const uint8_t* codes, int64_t block, hn::Vec<Floats>* sums) const {
    const Floats d;
    const int16_t* x = values_ + block * Format::kBlock * kParts;
    hn::Vec<Ints> dots[kX][kParts];
    HWY_UNROLL(16)
    for (auto& of_row : dots) {
      HWY_UNROLL(16)
      for (auto& dot : of_row) dot = hn::Zero(Ints());
    }
    auto words = hn::Zero(Words());
    HWY_UNROLL(16)
    for (int plane = 0; plane < Format::kPlanes; ++plane) {
      const auto plane_codes = format_.Plane(codes, plane, words);
      const int16_t* at = x + plane * kParts * kWords;
      HWY_UNROLL(16)
      for (int r = 0; r < kX; ++r, at += x_.row_stride) {
        HWY_UNROLL(16)
        for (int part = 0; part < kParts; ++part) {
          const auto of_x = hn::LoadU(Shorts(), at + part * kWords);
          dots[r][part] = AddPairs(plane_codes, of_x, dots[r][part]);
        }
      }
    }
    const float* scales = products_ + (block * Format::kBlock >> group_log2_);
    HWY_UNROLL(16)
    for (int r = 0; r < kX; ++r, scales += x_.group_stride) {
      auto dot = hn::ConvertTo(d, dots[r][0]);
      if constexpr (kParts == 2) {
        dot = hn::MulAdd(dot, hn::Set(d, 32768.0F), hn::ConvertTo(d, dots[r][1]));
      }
      const auto scale = kOneGroup ? hn::Set(d, *scales)
                                   : hn::TableLookupLanes(hn::LoadU(d, scales), group_of_lane_);
      sums[r] = hn::MulAdd(dot, scale, sums[r]);
    }
  }

  const AffineMatrix& w_;
  const FixedX& x_;
  int64_t x_row_;
  const int16_t* values_;
  float *scratch_, *products_;
  int64_t row_bytes_;
  int group_log2_;
  decltype(hn::IndicesFromVec(Floats(), hn::Vec<Ints>())) group_of_lane_;
  Format format_;
};

template <int kBits, int kParts>
void Affine(const FewRows& p, const AffineMatrix& w, FixedPoint precision) {
  FixedX x(p, w.group, Codes<kBits>::kBlock, Codes<kBits>::kInWord, kParts);
  constexpr int64_t kGroupGrain = 256;
  parallel_for(p.rows * x.groups, kGroupGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / x.groups;
      const int64_t group = i % x.groups;
      FixGroup(p.x + row * p.ldx + group * w.group, group, w.group, precision, row, x);
    }
  });
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / (p.k * kBits / 8));
  parallel_for(p.n, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(6 * x.group_stride));
    for (int64_t row = begin; row < end; row += kTogether) {
      const int64_t stop = std::min(end, row + kTogether);
      ForTiles(p.rows, [&](auto tile, int64_t x_row) HWY_ATTR {
        AffineRow<kBits, kParts, decltype(tile)::value> product(w, x, p.k, x_row, scratch.data());
        for (int64_t r = row; r < stop; ++r) {
          product.Multiply(r, p.y + x_row * p.ldy + r, p.ldy);
        }
      });
    }
  });
}

template <int kBits>
void AffineOf(const FewRows& p, const AffineMatrix& w, FixedPoint precision) {
  if (precision == FixedPoint::kInt30) return Affine<kBits, 2>(p, w, precision);
  Affine<kBits, 1>(p, w, precision);
}

void FewRowsAffine(const FewRows& p, const AffineMatrix& w, FixedPoint precision) {
  switch (w.bits) {
    case 1:
      return AffineOf<1>(p, w, precision);
    case 2:
      return AffineOf<2>(p, w, precision);
    case 3:
      return AffineOf<3>(p, w, precision);
    case 4:
      return AffineOf<4>(p, w, precision);
    case 5:
      return AffineOf<5>(p, w, precision);
    case 6:
      return AffineOf<6>(p, w, precision);
    default:
      return AffineOf<8>(p, w, precision);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mere::cpu {

HWY_EXPORT(FewRowsDense);
HWY_EXPORT(FewRowsAffine);

void few_rows_dense(const FewRows& product, const StoredMatrix& w) {
  HWY_DYNAMIC_DISPATCH(FewRowsDense)(product, w);
}

void few_rows_affine(const FewRows& product, const AffineMatrix& w, FixedPoint precision) {
  HWY_DYNAMIC_DISPATCH(FewRowsAffine)(product, w, precision);
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
