// Lanczos resampling with the arithmetic of Pillow (libImaging/Resample.c, 8 bits per channel):
// weights in double, rounded to 22 fractional bits, rows first and rounded to bytes in between.
// Any other order of rounding changes pixels by one level and fails the fixtures.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "core/error.h"
#include "media/codec.h"
#include "media/image.h"

namespace mere {
namespace {

constexpr int kFractionBits = 32 - 8 - 2;
constexpr int32_t kHalf = 1 << (kFractionBits - 1);
constexpr double kLobes = 3.0;  // support of the filter, in source pixels when enlarging

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) { return -kLobes <= x && x < kLobes ? sinc(x) * sinc(x / kLobes) : 0.0; }

// The source pixels that make up each target pixel along one side.
struct Weights {
  struct Span {
    int64_t first;  // source pixel
    int64_t count;
    size_t offset;  // into fixed
  };
  std::vector<Span> spans;     // [target]
  std::vector<int32_t> fixed;  // weights times 2^kFractionBits
};

Weights make_weights(int64_t source, int64_t target) {
  const double scale = static_cast<double>(source) / static_cast<double>(target);
  const double filter_scale = std::max(scale, 1.0);
  const double support = kLobes * filter_scale;
  const double step = 1.0 / filter_scale;
  Weights weights;
  weights.spans.reserve(static_cast<size_t>(target));
  std::vector<double> exact;
  for (int64_t i = 0; i < target; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    // Truncation and not rounding, as in the reference. NOLINTBEGIN(bugprone-incorrect-roundings)
    const auto first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const auto end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), source);
    // NOLINTEND(bugprone-incorrect-roundings)
    exact.clear();
    double sum = 0.0;
    for (int64_t x = first; x < end; ++x) {
      // The grouping of this sum matters: it is the reference's.
      exact.push_back(lanczos((static_cast<double>(x) - center + 0.5) * step));
      sum += exact.back();
    }
    weights.spans.push_back({first, end - first, weights.fixed.size()});
    for (double w : exact) {
      if (sum != 0.0) w /= sum;
      const double scaled = w * (1 << kFractionBits);
      weights.fixed.push_back(static_cast<int32_t>(scaled + (w < 0 ? -0.5 : 0.5)));
    }
  }
  return weights;
}

uint8_t to_byte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

// Rows [first_row, first_row + rows) of `image`, each brought to weights.spans.size() pixels.
Image resize_rows(const Image& image, const Weights& weights, int64_t first_row, int64_t rows) {
  Image out(static_cast<int64_t>(weights.spans.size()), rows);
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < rows; ++y) {
    const uint8_t* row = image.rgb.data() + (first_row + y) * image.width * 3;
    for (const auto& span : weights.spans) {
      const int32_t* weight = weights.fixed.data() + span.offset;
      const uint8_t* from = row + span.first * 3;
      int32_t sum[3] = {kHalf, kHalf, kHalf};
      for (int64_t k = 0; k < span.count; ++k, from += 3) {
        for (int c = 0; c < 3; ++c) sum[c] += from[c] * weight[k];
      }
      for (int c = 0; c < 3; ++c) *to++ = to_byte(sum[c]);
    }
  }
  return out;
}

// Columns likewise; row 0 of `image` is source row `first_row` of the weights.
Image resize_columns(const Image& image, const Weights& weights, int64_t first_row) {
  Image out(image.width, static_cast<int64_t>(weights.spans.size()));
  const int64_t row_bytes = image.width * 3;
  std::vector<int32_t> sums(static_cast<size_t>(row_bytes));
  uint8_t* to = out.rgb.data();
  for (const auto& span : weights.spans) {
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int64_t k = 0; k < span.count; ++k) {
      const uint8_t* from = image.rgb.data() + (span.first - first_row + k) * row_bytes;
      const int32_t weight = weights.fixed[span.offset + static_cast<size_t>(k)];
      for (int64_t i = 0; i < row_bytes; ++i) sums[static_cast<size_t>(i)] += from[i] * weight;
    }
    for (int32_t sum : sums) *to++ = to_byte(sum);
  }
  return out;
}

}  // namespace

Image resize_lanczos(const Image& image, int64_t width, int64_t height) {
  media::check_encodable(image, media::kMaxImageSide, "a picture");
  if (width <= 0 || height <= 0 || width > media::kMaxImageSide || height > media::kMaxImageSide ||
      width * height > kMaxImagePixels || width * image.height > 2 * kMaxImagePixels) {
    throw UsageError{{"image_too_large", "",
                      "cannot resize a picture of " + std::to_string(image.width) + "x" +
                          std::to_string(image.height) + " pixels to " + std::to_string(width) +
                          "x" + std::to_string(height),
                      ""}};
  }
  if (width == image.width && height == image.height) return image;
  if (height == image.height) {
    return resize_rows(image, make_weights(image.width, width), 0, height);
  }
  const Weights vertical = make_weights(image.height, height);
  if (width == image.width) return resize_columns(image, vertical, 0);
  const auto& last = vertical.spans.back();
  const int64_t first_row = vertical.spans.front().first;
  const Image wide = resize_rows(image, make_weights(image.width, width), first_row,
                                 last.first + last.count - first_row);
  return resize_columns(wide, vertical, first_row);
}

}  // namespace mere
