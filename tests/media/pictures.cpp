#include "pictures.h"

#include <algorithm>
#include <cstdlib>
#include <zlib.h>

namespace mere::test {

const std::string_view kPngSignature("\x89PNG\r\n\x1A\n", 8);

Image pattern(int64_t width, int64_t height) {
  Image image(width, height);
  auto to = image.rgb.begin();
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        *to++ = static_cast<uint8_t>((x * 7 + y * 13 + c * 29 + (x * y) % 31) & 255);
      }
    }
  }
  return image;
}

Image noise(int64_t width, int64_t height) {
  Image image(width, height);
  uint32_t state = 12345;
  for (uint8_t& value : image.rgb) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<uint8_t>(state >> 24);
  }
  return image;
}

Image hard(int64_t width, int64_t height) {
  Image image = noise(width, height);
  for (uint8_t& value : image.rgb) value = value > 127 ? 255 : 0;
  return image;
}

Image smooth(int64_t width, int64_t height) {
  Image image(width, height);
  auto to = image.rgb.begin();
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      *to++ = static_cast<uint8_t>(40 + 160 * x / width);
      *to++ = static_cast<uint8_t>(220 - 170 * y / height);
      *to++ = static_cast<uint8_t>(60 + 60 * (x + y) / (width + height));
    }
  }
  return image;
}

int largest_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.height, b.height);
  if (a.rgb.size() != b.rgb.size()) return 256;
  int largest = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i)
    largest = std::max(largest, std::abs(a.rgb[i] - b.rgb[i]));
  return largest;
}

Image stored_for_orientation(const Image& upright, int orientation) {
  // EXIF 2.3, tag 0x0112: "the 0th row is at the visual <first>, the 0th column at the <second>".
  struct Sides {
    char row;
    char column;
  };
  constexpr Sides kSides[] = {{},         {'t', 'l'}, {'t', 'r'}, {'b', 'r'}, {'b', 'l'},
                              {'l', 't'}, {'r', 't'}, {'r', 'b'}, {'l', 'b'}};
  const Sides sides = kSides[orientation];
  const bool rows_are_rows = sides.row == 't' || sides.row == 'b';
  const int64_t w = rows_are_rows ? upright.width : upright.height;
  const int64_t h = rows_are_rows ? upright.height : upright.width;
  Image out(w, h);
  const auto place = [&](char side, int64_t i, int64_t& x, int64_t& y) {
    if (side == 't') y = i;
    if (side == 'b') y = upright.height - 1 - i;
    if (side == 'l') x = i;
    if (side == 'r') x = upright.width - 1 - i;
  };
  for (int64_t row = 0; row < h; ++row) {
    for (int64_t column = 0; column < w; ++column) {
      int64_t x = 0;
      int64_t y = 0;
      place(sides.row, row, x, y);
      place(sides.column, column, x, y);
      std::copy_n(upright.rgb.begin() + (y * upright.width + x) * 3, 3,
                  out.rgb.begin() + (row * w + column) * 3);
    }
  }
  return out;
}

std::string big_endian(uint32_t value, int size) {
  std::string out;
  for (int i = size - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string little_endian(uint32_t value, int size) {
  std::string out = big_endian(value, size);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string orientation_tiff(int orientation, bool big) {
  const auto number = big ? big_endian : little_endian;
  const auto value = static_cast<uint32_t>(orientation);
  return (big ? "MM" : "II") + number(42, 2) + number(8, 4) + number(1, 2) + number(0x0112, 2) +
         number(3, 2) + number(1, 4) + number(value, 2) + number(0, 2) + number(0, 4);
}

std::string png_chunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  const uLong crc =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<uint32_t>(data.size()), 4) + body +
         big_endian(static_cast<uint32_t>(crc), 4);
}

std::string png_ihdr(uint32_t width, uint32_t height) {
  return png_chunk("IHDR", big_endian(width, 4) + big_endian(height, 4) +
                               std::string("\x08\x02\x00\x00\x00", 5));
}

std::string with_png_chunk(std::string_view png, std::string_view chunk) {
  constexpr size_t kHeaderEnd = 8 + 25;
  return std::string(png.substr(0, kHeaderEnd)) + std::string(chunk) +
         std::string(png.substr(kHeaderEnd));
}

std::string with_jpeg_segment(std::string_view jpeg, uint8_t marker, std::string_view data) {
  return std::string(jpeg.substr(0, 2)) + '\xFF' + static_cast<char>(marker) +
         big_endian(static_cast<uint32_t>(data.size() + 2), 2) + std::string(data) +
         std::string(jpeg.substr(2));
}

std::string riff_chunk(std::string_view type, std::string_view data) {
  return std::string(type) + little_endian(static_cast<uint32_t>(data.size()), 4) +
         std::string(data) + std::string(data.size() % 2, '\0');
}

std::string riff(std::string_view chunks) {
  return "RIFF" + little_endian(static_cast<uint32_t>(chunks.size() + 4), 4) + "WEBP" +
         std::string(chunks);
}

std::string with_webp_exif(std::string_view webp, int64_t width, int64_t height,
                           std::string_view exif) {
  const std::string extended = little_endian(0x08, 4) +
                               little_endian(static_cast<uint32_t>(width - 1), 3) +
                               little_endian(static_cast<uint32_t>(height - 1), 3);
  return riff(riff_chunk("VP8X", extended) + std::string(webp.substr(12)) +
              riff_chunk("EXIF", exif));
}

std::string error_code(const std::string& name, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(name), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return error.info().code;
  }
  return "";
}

}  // namespace mere::test
