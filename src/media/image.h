// Pictures: 8-bit pixels in memory, and reading and writing PNG, JPEG and WebP.
//
// Reading policy, the same for every format:
//   * EXIF orientation (JPEG, PNG eXIf, WebP EXIF) is applied to the pixels and then forgotten;
//   * palette, gray and 16-bit pictures become 8-bit RGB; alpha (also palette transparency) is
//     dropped: the colour under a transparent pixel is kept as stored;
//   * CMYK JPEGs are converted; embedded colour profiles are not applied;
//   * sizes are bounded by `kMaxImagePixels` before anything is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files.h"

namespace mere {

inline constexpr int64_t kMaxImagePixels = int64_t{64} << 20;  // 64 Mpixel, 192 MB as RGB
inline constexpr size_t kMaxImageFileBytes = size_t{256} << 20;

struct Image {
  int64_t width = 0;         // pixels
  int64_t height = 0;        // pixels
  std::vector<uint8_t> rgb;  // [height, width, 3], row-major

  Image() = default;
  Image(int64_t w, int64_t h) : width(w), height(h), rgb(static_cast<size_t>(w * h * 3)) {}
};

enum class ImageFormat { kPng, kJpeg, kWebp };

// Format by the extension of `path`, letter case ignored; UsageError for an unknown one.
ImageFormat format_of_path(const fs::path& path);

// Text entries stored in a picture, in file order: PNG tEXt/iTXt keyword -> text.
using ImageText = std::vector<std::pair<std::string, std::string>>;

struct ImageInfo {
  std::string format;  // "PNG", "JPEG", "WebP"
  int64_t width = 0;   // pixels, after orientation
  int64_t height = 0;
  ImageText text;
};

// Decodes bytes by their signature; `name` is used in messages. IoError when they are damaged,
// truncated, too large, or not one of the three formats.
Image decode_image(std::string_view bytes, const std::string& name);
Image read_image(const fs::path& path);

// Size, format and text entries without decoding pixels.
ImageInfo decode_image_info(std::string_view bytes, const std::string& name);
ImageInfo read_image_info(const fs::path& path);

// Encodes a picture. `text` goes into PNG iTXt/tEXt chunks, JPEG a COM segment each
// ("key: value"), WebP an XMP-free EXIF UserComment; empty writes no metadata at all.
std::string encode_image(const Image& image, ImageFormat format, const ImageText& text);

// Pillow's resize with the LANCZOS filter on 8-bit RGB, bit for bit (fixed-point coefficients,
// horizontal pass then vertical pass).
Image resize_lanczos(const Image& image, int64_t width, int64_t height);

// The `width` x `height` part of `image` whose top left corner is (left, top); must lie inside.
Image crop(const Image& image, int64_t left, int64_t top, int64_t width, int64_t height);

}  // namespace mere
