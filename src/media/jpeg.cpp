// JPEG. Segments before the first scan are walked here (size, EXIF, comments); libjpeg-turbo turns
// the scans into pixels.
//
// libjpeg goes on after damage with a warning and gray pixels; here such a warning is an error.
// Errors leave by longjmp, which skips destructors: functions that call setjmp, and the callbacks
// it jumps out of, hold only trivial objects. Owners live one call further out.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <jerror.h>
#include <jpeglib.h>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "media/bytes.h"
#include "media/codec.h"
#include "media/exif.h"
#include "media/text.h"

namespace mere::media {
namespace {

constexpr int kQuality = 95;
// Progressive files hold about ten scans; a thousand empty ones cost minutes of work.
constexpr int kMaxScans = 100;
constexpr size_t kMaxSegmentBytes = 65533;  // payload of one segment

constexpr const char* kCutOff = "the file is cut off";
constexpr std::string_view kExifMark("Exif\0\0", 6);

constexpr uint8_t kMarkerEoi = 0xD9;
constexpr uint8_t kMarkerSos = 0xDA;
constexpr uint8_t kMarkerApp1 = 0xE1;
constexpr uint8_t kMarkerCom = 0xFE;

bool has_payload(uint8_t marker) {
  return marker != 0x01 && !(marker >= 0xD0 && marker <= kMarkerEoi);
}

bool is_frame(uint8_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

// The next marker at or after `offset`, which moves past it. Stray bytes are skipped as libjpeg
// skips them.
uint8_t next_marker(const ByteView& view, size_t& offset, const std::string& name) {
  while (true) {
    const auto lead = view.u8(offset);
    const auto marker = view.u8(offset + 1);
    if (!lead || !marker) fail_damaged(name, kCutOff);
    ++offset;
    if (*lead != 0xFF || *marker == 0xFF || *marker == 0) continue;
    ++offset;
    return *marker;
  }
}

struct JpegError {
  jpeg_error_mgr base;  // first, so that libjpeg's pointer is ours
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr common) {
  auto* error = reinterpret_cast<JpegError*>(common->err);
  (*common->err->format_message)(common, error->message);
  std::longjmp(error->jump, 1);
}

// Warnings that leave every pixel as its writer meant it; after any other one pixels are made up.
bool is_harmless(int code) {
  return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
         code == JWRN_TOO_MUCH_DATA || code == JWRN_NOT_SEQUENTIAL;
}

void on_message(j_common_ptr common, int level) {
  if (level < 0 && !is_harmless(common->err->msg_code)) leave(common);
}

void on_output(j_common_ptr) {}

jpeg_error_mgr* init_error(JpegError& error) {
  jpeg_std_error(&error.base);
  error.base.error_exit = leave;
  error.base.emit_message = on_message;
  error.base.output_message = on_output;
  return &error.base;
}

void on_progress(j_common_ptr common) {
  if (!common->is_decompressor) return;
  auto* cinfo = reinterpret_cast<j_decompress_ptr>(common);
  if (cinfo->input_scan_number <= kMaxScans) return;
  auto* error = reinterpret_cast<JpegError*>(common->err);
  std::snprintf(error->message, sizeof(error->message), "more than %d scans", kMaxScans);
  std::longjmp(error->jump, 1);
}

// Owns what libjpeg allocates; constructed zeroed, so destroying is safe at any point.
struct Decoder {
  jpeg_decompress_struct cinfo{};
  JpegError error{};
  jpeg_progress_mgr progress{};
  ~Decoder() { jpeg_destroy_decompress(&cinfo); }
};

struct Encoder {
  jpeg_compress_struct cinfo{};
  JpegError error{};
  unsigned char* out = nullptr;
  unsigned long out_bytes = 0;
  ~Encoder() {
    jpeg_destroy_compress(&cinfo);
    std::free(out);
  }
};

// CMYK as every known writer stores it: inverted, so 255 means no ink. `rgb` may be the same
// memory only if it lies before `cmyk`.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>((cmyk[c] * cmyk[3] + 127) / 255);
  }
}

// Only trivial objects in here: see the top of the file. `line` holds width * 4 bytes.
bool read_pixels(Decoder* decoder, const char* bytes, size_t size, uint8_t* rgb, uint8_t* line,
                 int64_t width, int64_t height) {
  jpeg_decompress_struct* cinfo = &decoder->cinfo;
  if (setjmp(decoder->error.jump)) return false;
  jpeg_create_decompress(cinfo);
  decoder->progress.progress_monitor = on_progress;
  cinfo->progress = &decoder->progress;
  jpeg_mem_src(cinfo, reinterpret_cast<const unsigned char*>(bytes), size);
  jpeg_read_header(cinfo, TRUE);
  const bool cmyk = cinfo->jpeg_color_space == JCS_CMYK || cinfo->jpeg_color_space == JCS_YCCK;
  cinfo->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(cinfo);
  if (static_cast<int64_t>(cinfo->output_width) != width ||
      static_cast<int64_t>(cinfo->output_height) != height ||
      cinfo->output_components != (cmyk ? 4 : 3)) {
    std::snprintf(decoder->error.message, sizeof(decoder->error.message), "two headers disagree");
    return false;
  }
  while (cinfo->output_scanline < cinfo->output_height) {
    uint8_t* to = rgb + int64_t{cinfo->output_scanline} * width * 3;
    JSAMPROW row = cmyk ? line : to;
    jpeg_read_scanlines(cinfo, &row, 1);
    if (cmyk) cmyk_to_rgb(line, to, width);
  }
  jpeg_finish_decompress(cinfo);
  return true;
}

// Only trivial objects in here: see the top of the file.
bool write_picture(Encoder* encoder, const Image* image, const std::string* comments,
                   size_t comment_count) {
  jpeg_compress_struct* cinfo = &encoder->cinfo;
  if (setjmp(encoder->error.jump)) return false;
  jpeg_create_compress(cinfo);
  jpeg_mem_dest(cinfo, &encoder->out, &encoder->out_bytes);
  cinfo->image_width = static_cast<JDIMENSION>(image->width);
  cinfo->image_height = static_cast<JDIMENSION>(image->height);
  cinfo->input_components = 3;
  cinfo->in_color_space = JCS_RGB;
  jpeg_set_defaults(cinfo);
  jpeg_set_quality(cinfo, kQuality, TRUE);
  cinfo->optimize_coding = TRUE;
  for (int c = 0; c < cinfo->num_components; ++c) {
    cinfo->comp_info[c].h_samp_factor = 1;
    cinfo->comp_info[c].v_samp_factor = 1;
  }
  jpeg_start_compress(cinfo, TRUE);
  for (size_t i = 0; i < comment_count; ++i) {
    jpeg_write_marker(cinfo, JPEG_COM, reinterpret_cast<const JOCTET*>(comments[i].data()),
                      static_cast<unsigned int>(comments[i].size()));
  }
  while (cinfo->next_scanline < cinfo->image_height) {
    const uint8_t* from = image->rgb.data() + int64_t{cinfo->next_scanline} * image->width * 3;
    JSAMPROW row = const_cast<JSAMPROW>(from);
    jpeg_write_scanlines(cinfo, &row, 1);
  }
  jpeg_finish_compress(cinfo);
  return true;
}

}  // namespace

Header read_jpeg_header(std::string_view bytes, const std::string& name, ImageText* text) {
  const ByteView view(bytes, ByteOrder::kBig);
  Header header;
  std::string comment;  // COM segments; a full one goes on in the next
  const auto finish_comment = [&] {
    if (comment.empty()) return;
    auto [key, value] = split_entry(utf8_or_latin1(comment));
    add_text(*text, std::move(key), std::move(value), name);
    comment.clear();
  };
  size_t offset = 2;
  while (true) {
    const uint8_t marker = next_marker(view, offset, name);
    if (marker == kMarkerSos) break;
    if (marker == kMarkerEoi) fail_damaged(name, "there is no picture in the file");
    if (!has_payload(marker)) continue;
    const auto length = view.u16(offset);
    if (!length) fail_damaged(name, kCutOff);
    if (*length < 2) fail_damaged(name, "a segment is damaged");
    const auto data = view.slice(offset + 2, *length - 2u);
    if (!data) fail_damaged(name, kCutOff);
    offset += *length;
    if (is_frame(marker)) {
      const ByteView frame(*data, ByteOrder::kBig);
      const auto height = frame.u16(1);
      const auto width = frame.u16(3);
      if (!height || !width) fail_damaged(name, "the header is damaged");
      check_size(*width, *height, name);
      header.width = *width;
      header.height = *height;
    }
    if (marker == kMarkerApp1 && data->starts_with(kExifMark)) {
      header.orientation = exif_orientation(*data);
    }
    if (marker == kMarkerCom && text) {
      comment += *data;
      if (comment.size() > kMaxTextBytes) fail_damaged(name, "a comment is too long");
      if (data->size() < kMaxSegmentBytes) finish_comment();
    }
  }
  finish_comment();
  if (header.width == 0) fail_damaged(name, "the header is missing");
  return header;
}

void decode_jpeg(std::string_view bytes, const std::string& name, Image& image) {
  const auto decoder = std::make_unique<Decoder>();
  decoder->cinfo.err = init_error(decoder->error);
  std::vector<uint8_t> line(static_cast<size_t>(image.width) * 4);
  if (!read_pixels(decoder.get(), bytes.data(), bytes.size(), image.rgb.data(), line.data(),
                   image.width, image.height)) {
    fail_damaged(name, std::string("damaged JPEG: ") + decoder->error.message);
  }
}

std::string encode_jpeg(const Image& image, const ImageText& text) {
  check_encodable(image, JPEG_MAX_DIMENSION, "JPEG");
  // A text longer than a segment continues in the next one; the reader joins after a full one.
  std::vector<std::string> comments;
  for (const auto& [key, value] : text) {
    std::string line = key;
    line += ": ";
    line += value;
    for (size_t at = 0; at <= line.size(); at += kMaxSegmentBytes) {
      comments.push_back(line.substr(at, kMaxSegmentBytes));
    }
  }
  const auto encoder = std::make_unique<Encoder>();
  encoder->cinfo.err = init_error(encoder->error);
  if (!write_picture(encoder.get(), &image, comments.data(), comments.size())) {
    throw InternalError{
        {"image_encode", "", std::string("cannot write JPEG: ") + encoder->error.message, ""}};
  }
  return {reinterpret_cast<const char*>(encoder->out), encoder->out_bytes};
}

}  // namespace mere::media
