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

// Text entries stored in a picture, in file order: key -> UTF-8 text.
using ImageText = std::vector<std::pair<std::string, std::string>>;

struct ImageInfo {
  std::string format;  // "PNG", "JPEG", "WebP"
  int64_t width = 0;   // pixels, after orientation
  int64_t height = 0;
  ImageText text;
};

// Decodes bytes by their signature; `name` is used in messages. IoError when they are damaged,
// truncated, too large ("image_too_large"), animated, or not one of the three formats.
Image decode_image(std::string_view bytes, const std::string& name);
Image read_image(const fs::path& path);

// Size, format and text entries without decoding pixels. Text of other writers counts: PNG tEXt,
// zTXt and iTXt, JPEG comments and the EXIF user comment of WebP ("key: value", or else "Comment").
ImageInfo decode_image_info(std::string_view bytes, const std::string& name);
ImageInfo read_image_info(const fs::path& path);

// Encodes a picture: PNG lossless, JPEG quality 95 without chroma subsampling, WebP lossy quality
// 95. Equal arguments give equal bytes. `text` goes into PNG tEXt chunks (iTXt beyond Latin-1), a
// JPEG comment each ("key: value", continued in the next when longer than a segment), or an EXIF
// UserComment of such lines in WebP; decode_image_info gives the entries back. Empty writes no
// metadata at all. Keys are 1 to 79 printable ASCII characters without ':'. NUL and bytes that are
// not UTF-8 become U+FFFD. UsageError when the format cannot hold the size.
std::string encode_image(const Image& image, ImageFormat format, const ImageText& text);

// Pillow's resize with the LANCZOS filter on 8-bit RGB, bit for bit (fixed-point coefficients,
// horizontal pass then vertical pass). UsageError for a size that is empty or too large.
Image resize_lanczos(const Image& image, int64_t width, int64_t height);

// The `width` x `height` part of `image` whose top left corner is (left, top); must lie inside.
Image crop(const Image& image, int64_t left, int64_t top, int64_t width, int64_t height);

}  // namespace mere
