// What a picture format gives to image.cpp, which owns the order of work: read the header, bound
// the size, allocate, decode, turn upright.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "media/image.h"

namespace mere::media {

// A picture as it lies in the file, before EXIF orientation.
struct Header {
  int64_t width = 0;
  int64_t height = 0;
  int orientation = 1;  // EXIF, 1..8
};

// Each takes the whole file; `name` is for messages. `read_*_header` walks the container, checks
// the size as soon as it is known, and collects text entries when `text` is not null.
// `decode_*` fills `rgb` [height, width, 3] completely or throws.
Header read_png_header(std::string_view bytes, const std::string& name, ImageText* text);
Header read_jpeg_header(std::string_view bytes, const std::string& name, ImageText* text);
Header read_webp_header(std::string_view bytes, const std::string& name, ImageText* text);
void decode_png(std::string_view bytes, const std::string& name, Image& image);
void decode_jpeg(std::string_view bytes, const std::string& name, Image& image);
void decode_webp(std::string_view bytes, const std::string& name, Image& image);
std::string encode_png(const Image& image, const ImageText& text);
std::string encode_jpeg(const Image& image, const ImageText& text);
std::string encode_webp(const Image& image, const ImageText& text);

// IoError "image_too_large" unless both sides are positive and the picture is within
// kMaxImagePixels and kMaxImageSide.
void check_size(int64_t width, int64_t height, const std::string& name);
inline constexpr int64_t kMaxImageSide = 1'000'000;  // pixels; bounds row buffers of the libraries

// IoError "image_damaged".
[[noreturn]] void fail_damaged(const std::string& name, const std::string& what);
// UsageError: the format cannot hold a picture larger than `max_side` on one side.
void check_encodable(const Image& image, int64_t max_side, const char* format);

// Text entries of one file are bounded: more is refused when they are asked for.
inline constexpr size_t kMaxTextBytes = size_t{16} << 20;
inline constexpr size_t kMaxTextEntries = 1000;
void add_text(ImageText& text, std::string key, std::string value, const std::string& name);

}  // namespace mere::media
