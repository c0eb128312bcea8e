#include "media/sixel.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace mere::media {
namespace {

constexpr int kLevels = 6;
constexpr int kColors = kLevels * kLevels * kLevels;
constexpr int kBandRows = 6;  // pixels in one sixel character, top one in bit 0
constexpr int kPercentPerLevel = 100 / (kLevels - 1);

// Position (x, y) of the 8x8 ordered-dither matrix, 0..63: the bits of x^y and y interleaved.
int dither_rank(int64_t x, int64_t y) {
  int rank = 0;
  for (int bit = 0; bit < 3; ++bit) {
    rank = rank << 1 | static_cast<int>(((x ^ y) >> bit) & 1);
    rank = rank << 1 | static_cast<int>((y >> bit) & 1);
  }
  return rank;
}

// Colour index of every pixel, [height, width].
std::vector<uint8_t> quantise(const Image& image) {
  std::vector<uint8_t> out(static_cast<size_t>(image.width * image.height));
  std::array<std::array<int, 8>, 8> offsets{};  // threshold in units of 1/255 of a level step
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 8; ++x) offsets[y][x] = (2 * dither_rank(x, y) + 1) * 255 / 128;
  }
  const uint8_t* from = image.rgb.data();
  uint8_t* to = out.data();
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x, from += 3) {
      const int offset = offsets[y & 7][x & 7];
      int index = 0;
      for (int c = 0; c < 3; ++c) {
        index = index * kLevels + (from[c] * (kLevels - 1) + offset) / 255;
      }
      *to++ = static_cast<uint8_t>(index);
    }
  }
  return out;
}

void append_run(std::string& out, char sixel, int64_t count) {
  if (count > 3) {
    out += '!' + std::to_string(count) + sixel;
  } else {
    out.append(static_cast<size_t>(count), sixel);
  }
}

void append_palette(std::string& out) {
  for (int i = 0; i < kColors; ++i) {
    out += '#' + std::to_string(i) + ";2";
    for (int level : {i / (kLevels * kLevels), i / kLevels % kLevels, i % kLevels}) {
      out += ';' + std::to_string(level * kPercentPerLevel);
    }
  }
}

// One colour of one band; trailing empty columns are left out.
void append_color_row(std::string& out, const std::vector<uint8_t>& bits) {
  size_t end = bits.size();
  while (end > 0 && bits[end - 1] == 0) --end;
  for (size_t x = 0; x < end;) {
    size_t next = x;
    while (next < end && bits[next] == bits[x]) ++next;
    append_run(out, static_cast<char>('?' + bits[x]), static_cast<int64_t>(next - x));
    x = next;
  }
}

}  // namespace

std::string encode_sixel(const Image& image) {
  const std::vector<uint8_t> indices = quantise(image);
  // "9;1": square pixels, background left as it is. Then the raster size, so that terminals can
  // reserve room before the first band.
  std::string out =
      "\x1BP9;1q\"1;1;" + std::to_string(image.width) + ';' + std::to_string(image.height);
  append_palette(out);
  std::vector<uint8_t> bits(static_cast<size_t>(image.width));
  for (int64_t top = 0; top < image.height; top += kBandRows) {
    const int64_t rows = std::min<int64_t>(kBandRows, image.height - top);
    const uint8_t* band = indices.data() + top * image.width;
    std::array<bool, kColors> used{};
    for (int64_t i = 0; i < rows * image.width; ++i) used[band[i]] = true;
    for (int color = 0; color < kColors; ++color) {
      if (!used[static_cast<size_t>(color)]) continue;
      std::fill(bits.begin(), bits.end(), uint8_t{0});
      for (int64_t y = 0; y < rows; ++y) {
        for (int64_t x = 0; x < image.width; ++x) {
          if (band[y * image.width + x] == color) {
            bits[static_cast<size_t>(x)] |= static_cast<uint8_t>(1 << y);
          }
        }
      }
      out += '#' + std::to_string(color);
      append_color_row(out, bits);
      out += '$';
    }
    out += '-';
  }
  return out + "\x1B\\";
}

}  // namespace mere::media
