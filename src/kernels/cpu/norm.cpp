#include "kernels/cpu/norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>
//
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace {

// Sum of f(x[i]) with the vector lanes as independent partial sums.
template <class F>
float SumOf(const float* x, int64_t width, const F& f) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) sum = hn::Add(sum, f(d, hn::LoadU(d, x + i)));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  const hn::CappedTag<float, 1> one;
  for (; i < width; ++i) total += hn::GetLane(f(one, hn::LoadU(one, x + i)));
  return total;
}

// 1 / sqrt(square + eps), or NaN when `square` is not finite.
inline float InverseRoot(float square, float eps) {
  return square <= std::numeric_limits<float>::max() ? 1.0F / std::sqrt(square + eps)
                                                     : std::numeric_limits<float>::quiet_NaN();
}

void RmsNormRow(const float* x, const float* weight, float eps, int64_t width, float* out) {
  const float squares = SumOf(x, width, [](auto, auto v) HWY_ATTR { return hn::Mul(v, v); });
  const float factor = InverseRoot(squares / static_cast<float>(width), eps);
  ForEachVector(width, [&](int64_t i, auto d) HWY_ATTR {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, out + i);
  });
}

void LayerNormRow(const float* x, const float* scale, const float* shift, float eps, int64_t width,
                  float* out) {
  const float n = static_cast<float>(width);
  const float mean = SumOf(x, width, [](auto, auto v) HWY_ATTR { return v; }) / n;
  const float variance = SumOf(x, width,
                               [mean](auto d, auto v) HWY_ATTR {
                                 const auto centred = hn::Sub(v, hn::Set(d, mean));
                                 return hn::Mul(centred, centred);
                               }) /
                         n;
  const float factor = InverseRoot(variance, eps);
  ForEachVector(width, [&](int64_t i, auto d) HWY_ATTR {
    const auto centred = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    const auto normal = hn::Mul(centred, hn::Set(d, factor));
    const auto gain = hn::Add(hn::Set(d, 1.0F), hn::LoadU(d, scale + i));
    hn::StoreU(hn::MulAdd(normal, gain, hn::LoadU(d, shift + i)), d, out + i);
  });
}

// Adds kVectors vectors of channels from `c` on. Double sums: at 1024x1024 a group has millions of
// values, and float32 loses digits that the variance needs.
template <int kVectors, class D>
void AddChannels(D d, const float* x, int64_t rows, int64_t channels, int64_t c, double* sums) {
  using V = hn::Vec<D>;
  const hn::Rebind<float, D> narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kVectors];
  V square[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    sum[i] = hn::LoadU(d, sums + c + i * lanes);
    square[i] = hn::LoadU(d, sums + channels + c + i * lanes);
  }
  for (const float* from = x + c; rows > 0; --rows, from += channels) {
    for (int i = 0; i < kVectors; ++i) {
      const V v = hn::PromoteTo(d, hn::LoadU(narrow, from + i * lanes));
      sum[i] = hn::Add(sum[i], v);
      square[i] = hn::MulAdd(v, v, square[i]);
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    hn::StoreU(sum[i], d, sums + c + i * lanes);
    hn::StoreU(square[i], d, sums + channels + c + i * lanes);
  }
}

void ChannelSums(const float* x, int64_t rows, int64_t channels, double* sums) {
  constexpr int kUnroll = 4;
  const hn::ScalableTag<double> d;
  const hn::CappedTag<double, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + kUnroll * lanes <= channels; c += kUnroll * lanes) {
    AddChannels<kUnroll>(d, x, rows, channels, c, sums);
  }
  for (; c + lanes <= channels; c += lanes) AddChannels<1>(d, x, rows, channels, c, sums);
  for (; c < channels; ++c) AddChannels<1>(one, x, rows, channels, c, sums);
}

void ScaleShiftRows(const float* x, const float* scale, const float* shift, bool silu, int64_t rows,
                    int64_t channels, float* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * channels;
    float* to = out + row * channels;
    ForEachVector(channels, [&](int64_t c, auto d) HWY_ATTR {
      auto v = hn::MulAdd(hn::LoadU(d, from + c), hn::LoadU(d, scale + c), hn::LoadU(d, shift + c));
      if (silu) v = Silu(d, v);
      hn::StoreU(v, d, to + c);
    });
  }
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/parallel.h"

namespace mere::cpu {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(LayerNormRow);
HWY_EXPORT(ChannelSums);
HWY_EXPORT(ScaleShiftRows);

void rms_norm_row(const float* x, const float* weight, float eps, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, weight, eps, width, out);
}

void layer_norm_row(const float* x, const float* scale, const float* shift, float eps,
                    int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(LayerNormRow)(x, scale, shift, eps, width, out);
}

void channel_sums(const float* x, int64_t rows, int64_t channels, double* sums) {
  HWY_DYNAMIC_DISPATCH(ChannelSums)(x, rows, channels, sums);
}

void group_moments(const float* x, const PixelRows& pixels, int64_t channels, int64_t groups,
                   double* moments) {
  // Fixed slices whose sums are added in order: the result does not depend on the threads.
  constexpr int64_t kSlicePixels = 1024;
  const int64_t per_row = (pixels.width + kSlicePixels - 1) / kSlicePixels;
  const int64_t slices = pixels.rows * per_row;
  std::vector<double> sums(static_cast<size_t>(slices * channels * 2), 0.0);
  parallel_for(slices, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slice = begin; slice < end; ++slice) {
      const int64_t column = slice % per_row * kSlicePixels;
      const int64_t first = slice / per_row * pixels.stride + column;
      channel_sums(x + first * channels, std::min(kSlicePixels, pixels.width - column), channels,
                   sums.data() + slice * channels * 2);
    }
  });
  for (int64_t slice = 1; slice < slices; ++slice) {
    for (int64_t i = 0; i < channels * 2; ++i) sums[i] += sums[slice * channels * 2 + i];
  }
  const int64_t per_group = channels / groups;
  const auto count = static_cast<double>(pixels.rows * pixels.width * per_group);
  for (int64_t group = 0; group < groups; ++group) {
    double sum = 0;
    double squares = 0;
    for (int64_t c = group * per_group; c < (group + 1) * per_group; ++c) {
      sum += sums[c];
      squares += sums[channels + c];
    }
    const double mean = sum / count;
    moments[2 * group] = mean;
    moments[2 * group + 1] = std::max(squares / count - mean * mean, 0.0);  // keeps a NaN
  }
}

void group_norm_factors(const float* x, int64_t pixels, const float* given, int64_t channels,
                        int64_t groups, float eps, const float* weight, const float* bias,
                        float* scale, float* shift) {
  std::vector<double> moments(static_cast<size_t>(2 * groups));
  if (given != nullptr) {
    std::copy_n(given, moments.size(), moments.begin());
  } else {
    group_moments(x, {1, pixels, pixels}, channels, groups, moments.data());
  }
  const int64_t per_group = channels / groups;
  for (int64_t c = 0; c < channels; ++c) {
    const double mean = moments[2 * (c / per_group)];
    const double variance = moments[2 * (c / per_group) + 1];
    const double factor = variance <= std::numeric_limits<float>::max()
                              ? 1.0 / std::sqrt(variance + eps)
                              : std::numeric_limits<double>::quiet_NaN();
    const double gain = factor * weight[c];
    scale[c] = static_cast<float>(gain);
    shift[c] = static_cast<float>(bias[c] - mean * gain);
  }
}

void scale_shift_rows(const float* x, const float* scale, const float* shift, bool silu,
                      int64_t rows, int64_t channels, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleShiftRows)(x, scale, shift, silu, rows, channels, out);
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
