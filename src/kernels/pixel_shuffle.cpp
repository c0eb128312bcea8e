#include "kernels/pixel_shuffle.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int kMostFactor = 1 << 12;     // its square is an int
constexpr int64_t kGrainFloats = 16384;  // least work worth a thread

void require_pixels(const char* name, const mx::array& x, int factor, bool fits) {
  require_float32(name, {x});
  if (x.ndim() == 4 && factor >= 1 && factor <= kMostFactor && fits) return;
  throw std::invalid_argument("[" + std::string(name) + "] the factor does not fit the shape");
}

// body(packed pixel, unpacked pixel, place in the block) over blocks in parallel. Pixels count
// row-major over [B, height, width] of packed and [B, height factor, width factor] of unpacked.
template <class Body>
void for_each_pixel(int64_t blocks, int64_t width, int64_t factor, int64_t channels,
                    const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / (factor * factor * channels));
  cpu::parallel_for(blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t corner = (block / width * factor * width + block % width) * factor;
      for (int64_t place = 0; place < factor * factor; ++place) {
        body(block, corner + place / factor * (width * factor) + place % factor, place);
      }
    }
  });
}

}  // namespace

mx::array pixel_shuffle(const mx::array& x, int factor) {
  require_pixels("pixel_shuffle", x, factor,
                 x.ndim() == 4 && factor != 0 && x.shape(3) % (int64_t{factor} * factor) == 0);
  const int channels = x.shape(3) / (factor * factor);
  const mx::Shape shape = {x.shape(0), x.shape(1) * factor, x.shape(2) * factor, channels};
  return cpu_op(
      "pixel_shuffle", shape, {x},
      [factor, channels](const auto& in, auto& out) {
        const Rows<float> packed(in[0]);
        float* const to = out.template data<float>();
        const int64_t step = int64_t{factor} * factor;
        for_each_pixel(packed.count(), in[0].shape(2), factor, channels,
                       [&](int64_t block, int64_t pixel, int64_t place) {
                         const float* from = packed.row(block) + place;
                         float* pixel_to = to + pixel * channels;
                         for (int64_t c = 0; c < channels; ++c) pixel_to[c] = from[c * step];
                       });
      },
      [factor, channels, shape](const auto& in) {
        const auto& s = in[0].shape();
        const auto split = mx::reshape(in[0], {s[0], s[1], s[2], channels, factor, factor});
        return std::vector{mx::reshape(mx::transpose(split, {0, 1, 4, 2, 5, 3}), shape)};
      });
}

mx::array pixel_unshuffle(const mx::array& x, int factor) {
  require_pixels(
      "pixel_unshuffle", x, factor,
      x.ndim() == 4 && factor != 0 && x.shape(1) % factor == 0 && x.shape(2) % factor == 0);
  const int channels = x.shape(3);
  const mx::Shape shape = {x.shape(0), x.shape(1) / factor, x.shape(2) / factor,
                           channels * factor * factor};
  return cpu_op(
      "pixel_unshuffle", shape, {x},
      [factor, channels](const auto& in, auto& out) {
        const Rows<float> pixels(in[0]);
        float* const to = out.template data<float>();
        const int64_t step = int64_t{factor} * factor;
        for_each_pixel(pixels.count() / step, out.shape(2), factor, channels,
                       [&](int64_t block, int64_t pixel, int64_t place) {
                         const float* from = pixels.row(pixel);
                         float* block_to = to + block * channels * step + place;
                         for (int64_t c = 0; c < channels; ++c) block_to[c * step] = from[c];
                       });
      },
      [factor, channels, shape](const auto& in) {
        const auto split =
            mx::reshape(in[0], {shape[0], shape[1], factor, shape[2], factor, channels});
        return std::vector{mx::reshape(mx::transpose(split, {0, 1, 3, 5, 2, 4}), shape)};
      });
}

}  // namespace mere
