// WebP. The RIFF container is walked and, when there is metadata, written here; libwebp turns the
// one still picture into pixels. Animations are refused.
#include <cstring>
#include <webp/decode.h>
#include <webp/encode.h>

#include "core/error.h"
#include "media/bytes.h"
#include "media/codec.h"
#include "media/exif.h"
#include "media/text.h"

namespace mere::media {
namespace {

constexpr float kQuality = 95.0F;
constexpr size_t kRiffHeaderBytes = 12;
constexpr size_t kChunkHeaderBytes = 8;
constexpr uint32_t kFlagAnimation = 0x02;
constexpr uint32_t kFlagExif = 0x08;

constexpr const char* kCutOff = "the file is cut off";

const uint8_t* as_bytes(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

// The RIFF file without what may follow it; every byte it promises must be there.
std::string_view riff_file(std::string_view bytes, const std::string& name) {
  const auto size = ByteView(bytes, ByteOrder::kLittle).u32(4);
  if (!size || *size > bytes.size() - 8) fail_damaged(name, kCutOff);
  return bytes.substr(0, 8 + size_t{*size});
}

[[noreturn]] void fail_animated(const std::string& name) {
  throw IoError{{"image_animated", name, name + ": animated WebP pictures are not supported",
                 "save one frame as a picture"}};
}

void read_exif(std::string_view exif, const std::string& name, Header& header, ImageText* text) {
  header.orientation = exif_orientation(exif);
  if (!text) return;
  const auto comment = exif_user_comment(exif);
  if (!comment) return;
  const auto entries = split_lines(*comment);
  if (!entries) return add_text(*text, "Comment", *comment, name);
  for (const auto& [key, value] : *entries) add_text(*text, key, value, name);
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  out += type;
  append_le(out, static_cast<uint32_t>(data.size()), 4);
  out += data;
  if (data.size() % 2 != 0) out += '\0';
}

// `plain` is a file of one VP8 or VP8L chunk; the result adds `exif` in the extended layout.
std::string with_exif(std::string_view plain, const Image& image, std::string_view exif) {
  std::string extended;
  append_le(extended, kFlagExif, 4);
  append_le(extended, static_cast<uint32_t>(image.width - 1), 3);
  append_le(extended, static_cast<uint32_t>(image.height - 1), 3);
  std::string body = "WEBP";
  append_chunk(body, "VP8X", extended);
  body += plain.substr(kRiffHeaderBytes);
  append_chunk(body, "EXIF", exif);
  std::string out = "RIFF";
  append_le(out, static_cast<uint32_t>(body.size()), 4);
  return out + body;
}

struct Picture {
  WebPPicture picture;
  WebPMemoryWriter writer;
  Picture() {
    WebPPictureInit(&picture);
    WebPMemoryWriterInit(&writer);
  }
  ~Picture() {
    WebPPictureFree(&picture);
    WebPMemoryWriterClear(&writer);
  }
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;
};

}  // namespace

Header read_webp_header(std::string_view bytes, const std::string& name, ImageText* text) {
  const std::string_view file = riff_file(bytes, name);
  const ByteView view(file, ByteOrder::kLittle);
  Header header;
  bool has_picture = false;
  for (size_t offset = kRiffHeaderBytes; offset < file.size();) {
    const auto type = view.slice(offset, 4);
    const auto size = view.u32(offset + 4);
    if (!type || !size) fail_damaged(name, kCutOff);
    const auto data = view.slice(offset + kChunkHeaderBytes, *size);
    if (!data) fail_damaged(name, kCutOff);
    offset += kChunkHeaderBytes + size_t{*size} + *size % 2;
    if (*type == "VP8X") {
      const ByteView extended(*data, ByteOrder::kLittle);
      const auto flags = extended.u32(0);
      const auto width = extended.u24(4);
      const auto height = extended.u24(7);
      if (!flags || !width || !height) fail_damaged(name, "the header is damaged");
      check_size(int64_t{*width} + 1, int64_t{*height} + 1, name);
      if (*flags & kFlagAnimation) fail_animated(name);
    }
    if (*type == "ANIM" || *type == "ANMF") fail_animated(name);
    has_picture = has_picture || *type == "VP8 " || *type == "VP8L";
    if (*type == "EXIF") read_exif(*data, name, header, text);
  }
  if (!has_picture) fail_damaged(name, "there is no picture in the file");
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(as_bytes(file), file.size(), &features) != VP8_STATUS_OK) {
    fail_damaged(name, "the header is damaged");
  }
  if (features.has_animation) fail_animated(name);
  check_size(features.width, features.height, name);
  header.width = features.width;
  header.height = features.height;
  return header;
}

void decode_webp(std::string_view bytes, const std::string& name, Image& image) {
  const std::string_view file = riff_file(bytes, name);
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) {
    throw InternalError{{"webp_version", "", "libwebp does not match its headers", ""}};
  }
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image.rgb.data();
  config.output.u.RGBA.stride = static_cast<int>(image.width * 3);
  config.output.u.RGBA.size = image.rgb.size();
  const VP8StatusCode status = WebPDecode(as_bytes(file), file.size(), &config);
  const bool complete = config.output.width == image.width && config.output.height == image.height;
  WebPFreeDecBuffer(&config.output);
  if (status == VP8_STATUS_OUT_OF_MEMORY) {
    throw ResourceError{{"out_of_memory", name, name + ": not enough memory for WebP", ""}};
  }
  if (status != VP8_STATUS_OK || !complete) fail_damaged(name, "damaged WebP picture data");
}

std::string encode_webp(const Image& image, const ImageText& text) {
  check_encodable(image, WEBP_MAX_DIMENSION, "WebP");
  WebPConfig config;
  Picture out;
  if (!WebPConfigPreset(&config, WEBP_PRESET_DEFAULT, kQuality)) {
    throw InternalError{{"webp_version", "", "libwebp does not match its headers", ""}};
  }
  // WebP halves the colour resolution; this conversion keeps coloured edges sharp.
  config.use_sharp_yuv = 1;
  out.picture.use_argb = 1;
  out.picture.width = static_cast<int>(image.width);
  out.picture.height = static_cast<int>(image.height);
  out.picture.writer = WebPMemoryWrite;
  out.picture.custom_ptr = &out.writer;
  if (!WebPPictureImportRGB(&out.picture, image.rgb.data(), static_cast<int>(image.width * 3)) ||
      !WebPEncode(&config, &out.picture)) {
    throw InternalError{{"image_encode", "",
                         "cannot write WebP: error " + std::to_string(out.picture.error_code), ""}};
  }
  const std::string_view plain(reinterpret_cast<const char*>(out.writer.mem), out.writer.size);
  if (text.empty()) return std::string(plain);
  return with_exif(plain, image, make_exif_user_comment(join_lines(text)));
}

}  // namespace mere::media
