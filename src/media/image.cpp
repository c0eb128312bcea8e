#include "media/image.h"

#include <algorithm>
#include <array>
#include <new>

#include "core/error.h"
#include "media/codec.h"
#include "media/exif.h"
#include "media/text.h"

namespace mere {

using namespace media;

namespace {

struct Codec {
  ImageFormat format;
  const char* name;
  std::vector<std::string_view> extensions;
  bool (*recognise)(std::string_view bytes);
  Header (*read_header)(std::string_view bytes, const std::string& name, ImageText* text);
  void (*decode)(std::string_view bytes, const std::string& name, Image& image);
  std::string (*encode)(const Image& image, const ImageText& text);
};

const std::array<Codec, 3>& codecs() {
  static const std::array<Codec, 3> kCodecs{{
      {ImageFormat::kPng,
       "PNG",
       {".png"},
       [](std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1A\n"); },
       read_png_header,
       decode_png,
       encode_png},
      {ImageFormat::kJpeg,
       "JPEG",
       {".jpg", ".jpeg"},
       [](std::string_view bytes) { return bytes.starts_with("\xFF\xD8\xFF"); },
       read_jpeg_header,
       decode_jpeg,
       encode_jpeg},
      {ImageFormat::kWebp,
       "WebP",
       {".webp"},
       [](std::string_view bytes) {
         return bytes.starts_with("RIFF") && bytes.substr(4).substr(0, 8).ends_with("WEBP");
       },
       read_webp_header,
       decode_webp,
       encode_webp},
  }};
  return kCodecs;
}

const Codec& codec_of_bytes(std::string_view bytes, const std::string& name) {
  if (bytes.empty()) throw IoError{{"image_format", name, name + ": the file is empty", ""}};
  for (const Codec& codec : codecs()) {
    if (codec.recognise(bytes)) return codec;
  }
  throw IoError{{"image_format", name, name + ": not a PNG, JPEG or WebP picture", ""}};
}

}  // namespace

namespace media {

void fail_damaged(const std::string& name, const std::string& what) {
  throw IoError{{"image_damaged", name, name + ": " + what, ""}};
}

void check_size(int64_t width, int64_t height, const std::string& name) {
  if (width <= 0 || height <= 0) fail_damaged(name, "the picture has no pixels");
  if (width <= kMaxImageSide && height <= kMaxImageSide && width * height <= kMaxImagePixels) {
    return;
  }
  throw IoError{{"image_too_large", name,
                 name + ": the picture is " + std::to_string(width) + "x" + std::to_string(height) +
                     " pixels; at most " + std::to_string(kMaxImagePixels) +
                     " pixels in all are read",
                 "make it smaller first"}};
}

void check_encodable(const Image& image, int64_t max_side, const char* format) {
  if (image.width <= 0 || image.height <= 0 || image.width > kMaxImageSide ||
      image.height > kMaxImageSide ||
      image.rgb.size() != static_cast<size_t>(image.width * image.height * 3)) {
    throw InternalError{{"image_invalid", "", "picture without matching pixels", ""}};
  }
  if (image.width <= max_side && image.height <= max_side) return;
  throw UsageError{{"image_too_large", "",
                    std::string(format) + " holds at most " + std::to_string(max_side) +
                        " pixels on a side; the picture is " + std::to_string(image.width) + "x" +
                        std::to_string(image.height),
                    "write a .png instead"}};
}

void add_text(ImageText& text, std::string key, std::string value, const std::string& name) {
  size_t total = key.size() + value.size();
  for (const auto& [k, v] : text) total += k.size() + v.size();
  if (text.size() >= kMaxTextEntries || total > kMaxTextBytes) {
    fail_damaged(name, "too many or too long text entries");
  }
  text.emplace_back(std::move(key), std::move(value));
}

}  // namespace media

ImageFormat format_of_path(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  std::string supported;
  for (const Codec& codec : codecs()) {
    for (std::string_view known : codec.extensions) {
      if (extension == known) return codec.format;
      supported += (supported.empty() ? "" : ", ") + std::string(known);
    }
  }
  throw UsageError{{"output_format", path.string(),
                    path.string() + ": pictures end in one of " + supported,
                    "change the name, for example to " +
                        fs::path(path).replace_extension(".png").filename().string()}};
}

Image decode_image(std::string_view bytes, const std::string& name) {
  const Codec& codec = codec_of_bytes(bytes, name);
  const Header header = codec.read_header(bytes, name, nullptr);
  try {
    Image image(header.width, header.height);
    codec.decode(bytes, name, image);
    return turn_upright(std::move(image), header.orientation);
  } catch (const std::bad_alloc&) {
    throw ResourceError{
        {"out_of_memory", name, name + ": not enough memory to read the picture", ""}};
  }
}

Image read_image(const fs::path& path) {
  return decode_image(read_file(path, kMaxImageFileBytes), path.string());
}

ImageInfo decode_image_info(std::string_view bytes, const std::string& name) {
  const Codec& codec = codec_of_bytes(bytes, name);
  ImageInfo info;
  const Header header = codec.read_header(bytes, name, &info.text);
  info.format = codec.name;
  info.width = header.width;
  info.height = header.height;
  if (swaps_sides(header.orientation)) std::swap(info.width, info.height);
  return info;
}

ImageInfo read_image_info(const fs::path& path) {
  return decode_image_info(read_file(path, kMaxImageFileBytes), path.string());
}

std::string encode_image(const Image& image, ImageFormat format, const ImageText& text) {
  const ImageText checked = checked_text(text);
  for (const Codec& codec : codecs()) {
    if (codec.format == format) return codec.encode(image, checked);
  }
  throw InternalError{{"image_format", "", "unknown picture format", ""}};
}

Image crop(const Image& image, int64_t left, int64_t top, int64_t width, int64_t height) {
  if (left < 0 || top < 0 || width < 0 || height < 0 || width > image.width - left ||
      height > image.height - top) {
    throw InternalError{{"crop_outside", "", "the part to cut out is not inside the picture", ""}};
  }
  Image out(width, height);
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* from = image.rgb.data() + ((top + y) * image.width + left) * 3;
    std::copy(from, from + width * 3, out.rgb.data() + y * width * 3);
  }
  return out;
}

}  // namespace mere
