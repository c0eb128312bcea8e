// PNG. The container is walked here (chunk bounds, checksums, text, EXIF); libpng only turns the
// image data into pixels and is told to ignore every other chunk.
//
// libpng reports errors by longjmp, which skips destructors: functions that call setjmp, and the
// callbacks it jumps out of, hold only trivial objects. Owners live one call further out.
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <limits>
#include <png.h>
#include <utility>
#include <zlib.h>

#include "core/error.h"
#include "media/bytes.h"
#include "media/codec.h"
#include "media/exif.h"
#include "media/text.h"

namespace mere::media {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kMaxInflatedText = size_t{1} << 20;  // one zTXt or iTXt entry
constexpr uint64_t kMaxDeflateRatio = 1032;           // no zlib stream expands further
// Measured on generated pictures: level 6 takes two to three times as long and saves 2 % at best.
constexpr int kCompressionLevel = 4;

constexpr const char* kCutOff = "the file is cut off";

struct Chunk {
  std::string_view type;
  std::string_view data;
};

// The chunk at `offset`, which moves past it. Checks bounds and checksum.
Chunk next_chunk(const ByteView& view, size_t& offset, const std::string& name) {
  const auto length = view.u32(offset);
  const auto type = view.slice(offset + 4, 4);
  if (!length || !type) fail_damaged(name, kCutOff);
  const auto data = view.slice(offset + 8, *length);
  const auto stored_crc = view.u32(offset + 8 + *length);
  if (!data || !stored_crc) fail_damaged(name, kCutOff);
  const std::string_view covered = *view.slice(offset + 4, 4 + size_t{*length});
  // Chunk lengths fit zlib's 32 bits because files are bounded by kMaxImageFileBytes.
  const uLong crc =
      crc32(0, reinterpret_cast<const Bytef*>(covered.data()), static_cast<uInt>(covered.size()));
  if (crc != *stored_crc) {
    fail_damaged(name, "the checksum of chunk '" + std::string(*type) + "' is wrong");
  }
  offset += 12 + size_t{*length};
  return {*type, *data};
}

std::string inflate_text(std::string_view packed, const std::string& name) {
  std::string out;
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) fail_damaged(name, "cannot start zlib");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  int status = Z_OK;
  char part[4096];
  while (status == Z_OK && out.size() <= kMaxInflatedText) {
    stream.next_out = reinterpret_cast<Bytef*>(part);
    stream.avail_out = sizeof(part);
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(part, sizeof(part) - stream.avail_out);
  }
  inflateEnd(&stream);
  if (out.size() > kMaxInflatedText) fail_damaged(name, "a text entry is too long");
  if (status != Z_STREAM_END) fail_damaged(name, "a compressed text entry is damaged");
  return out;
}

// The part of `data` up to its first NUL; `data` moves behind it.
std::string_view take_string(std::string_view& data, const std::string& name) {
  const size_t end = data.find('\0');
  if (end == std::string_view::npos) fail_damaged(name, "a text entry is damaged");
  const std::string_view part = data.substr(0, end);
  data.remove_prefix(end + 1);
  return part;
}

void read_text_chunk(const Chunk& chunk, const std::string& name, ImageText& text) {
  std::string_view data = chunk.data;
  const std::string key = latin1_to_utf8(take_string(data, name));
  if (chunk.type == "tEXt") return add_text(text, key, latin1_to_utf8(data), name);
  const ByteView view(data, ByteOrder::kBig);
  if (chunk.type == "zTXt") {
    if (view.u8(0) != 0) fail_damaged(name, "a compressed text entry is damaged");
    return add_text(text, key, latin1_to_utf8(inflate_text(data.substr(1), name)), name);
  }
  const auto compressed = view.u8(0);
  const auto method = view.u8(1);
  if (!compressed || !method || *compressed > 1 || (*compressed == 1 && *method != 0)) {
    fail_damaged(name, "a text entry is damaged");
  }
  data.remove_prefix(2);
  take_string(data, name);  // language
  take_string(data, name);  // translated key
  add_text(text, key, clean_utf8(*compressed ? inflate_text(data, name) : std::string(data)), name);
}

// What an IHDR chunk says; checked again by libpng.
struct Ihdr {
  Header header;
  uint64_t raw_bytes = 0;  // least size of the inflated picture
};

Ihdr parse_ihdr(const Chunk& chunk, const std::string& name) {
  if (chunk.type != "IHDR" || chunk.data.size() != 13) fail_damaged(name, "the header is damaged");
  const ByteView view(chunk.data, ByteOrder::kBig);
  Ihdr out;
  out.header.width = *view.u32(0);
  out.header.height = *view.u32(4);
  check_size(out.header.width, out.header.height, name);
  constexpr int kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  const uint8_t depth = *view.u8(8);
  const uint8_t color = *view.u8(9);
  const int channels = color < std::size(kChannels) ? kChannels[color] : 0;
  if (channels == 0 || depth > 16) fail_damaged(name, "the header is damaged");
  out.raw_bytes =
      static_cast<uint64_t>(out.header.width * out.header.height) * depth * channels / 8;
  return out;
}

// State shared with libpng's callbacks. Trivial on purpose.
struct Context {
  const char* bytes = nullptr;
  size_t left = 0;
  std::string* out = nullptr;
  char message[200] = {};
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* context = static_cast<Context*>(png_get_error_ptr(png));
  std::snprintf(context->message, sizeof(context->message), "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep to, size_t size) {
  auto* context = static_cast<Context*>(png_get_io_ptr(png));
  if (size > context->left) png_error(png, kCutOff);
  std::memcpy(to, context->bytes, size);
  context->bytes += size;
  context->left -= size;
}

bool append(std::string& out, const char* bytes, size_t size) noexcept {
  try {
    out.append(bytes, size);
    return true;
  } catch (...) {
    return false;
  }
}

void on_write(png_structp png, png_bytep from, size_t size) {
  auto* context = static_cast<Context*>(png_get_io_ptr(png));
  if (!append(*context->out, reinterpret_cast<const char*>(from), size)) {
    png_error(png, "not enough memory");
  }
}

void on_flush(png_structp) {}

class PngReader {
 public:
  explicit PngReader(Context& context)
      : png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, &context, on_error, on_warning)),
        info_(png_ ? png_create_info_struct(png_) : nullptr) {}
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  png_structp png() const { return png_; }
  png_infop info() const { return info_; }

 private:
  png_structp png_;
  png_infop info_;
};

class PngWriter {
 public:
  explicit PngWriter(Context& context)
      : png_(png_create_write_struct(PNG_LIBPNG_VER_STRING, &context, on_error, on_warning)),
        info_(png_ ? png_create_info_struct(png_) : nullptr) {}
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;
  png_structp png() const { return png_; }
  png_infop info() const { return info_; }

 private:
  png_structp png_;
  png_infop info_;
};

// Only trivial objects in here: see the top of the file.
bool read_pixels(png_structp png, png_infop info, Context* context, uint8_t* rgb, int64_t width,
                 int64_t height) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_read_fn(png, context, on_read);
  png_set_user_limits(png, kMaxImageSide, kMaxImageSide);
  png_set_chunk_malloc_max(png, png_alloc_size_t{1} << 20);
  png_set_chunk_cache_max(png, 16);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(png, info);
  png_set_palette_to_rgb(png);
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_gray_to_rgb(png);
  png_set_scale_16(png);
  png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_image_width(png, info) != static_cast<png_uint_32>(width) ||
      png_get_image_height(png, info) != static_cast<png_uint_32>(height) ||
      png_get_rowbytes(png, info) != static_cast<size_t>(width) * 3) {
    png_error(png, "the header is damaged");
  }
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t y = 0; y < height; ++y) png_read_row(png, rgb + y * width * 3, nullptr);
  }
  png_read_end(png, nullptr);
  return true;
}

struct RawChunk {
  const char* type;
  std::string data;
};

RawChunk text_chunk(const std::string& key, const std::string& value) {
  if (const auto latin1 = utf8_to_latin1(value)) return {"tEXt", key + '\0' + *latin1};
  // Not compressed, no language, no translated key.
  return {"iTXt", key + std::string(5, '\0') + value};
}

// Only trivial objects in here: see the top of the file.
bool write_picture(png_structp png, png_infop info, Context* context, const Image* image,
                   const RawChunk* chunks, size_t chunk_count) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_write_fn(png, context, on_write, on_flush);
  png_set_compression_level(png, kCompressionLevel);
  png_set_IHDR(png, info, static_cast<png_uint_32>(image->width),
               static_cast<png_uint_32>(image->height), 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (size_t i = 0; i < chunk_count; ++i) {
    png_write_chunk(png, reinterpret_cast<png_const_bytep>(chunks[i].type),
                    reinterpret_cast<png_const_bytep>(chunks[i].data.data()),
                    chunks[i].data.size());
  }
  for (int64_t y = 0; y < image->height; ++y) {
    png_write_row(png, image->rgb.data() + y * image->width * 3);
  }
  png_write_end(png, info);
  return true;
}

}  // namespace

Header read_png_header(std::string_view bytes, const std::string& name, ImageText* text) {
  const ByteView view(bytes, ByteOrder::kBig);
  size_t offset = kSignatureBytes;
  Ihdr ihdr = parse_ihdr(next_chunk(view, offset, name), name);
  uint64_t idat_bytes = 0;
  while (true) {
    const Chunk chunk = next_chunk(view, offset, name);
    if (chunk.type == "IEND") break;
    if (chunk.type == "IDAT") idat_bytes += chunk.data.size();
    if (chunk.type == "eXIf") ihdr.header.orientation = exif_orientation(chunk.data);
    if (text && (chunk.type == "tEXt" || chunk.type == "zTXt" || chunk.type == "iTXt")) {
      read_text_chunk(chunk, name, *text);
    }
  }
  // A header that promises more than the data can hold is refused before its pixels are allocated.
  if (idat_bytes * kMaxDeflateRatio < ihdr.raw_bytes) {
    fail_damaged(name, "the picture data is incomplete");
  }
  return ihdr.header;
}

void decode_png(std::string_view bytes, const std::string& name, Image& image) {
  Context context;
  context.bytes = bytes.data();
  context.left = bytes.size();
  const PngReader reader(context);
  if (!reader.info())
    throw ResourceError{{"out_of_memory", name, name + ": no memory for PNG", ""}};
  if (!read_pixels(reader.png(), reader.info(), &context, image.rgb.data(), image.width,
                   image.height)) {
    fail_damaged(name, std::string("damaged PNG: ") + context.message);
  }
}

std::string encode_png(const Image& image, const ImageText& text) {
  check_encodable(image, kMaxImageSide, "PNG");
  std::vector<RawChunk> chunks;
  for (const auto& [key, value] : text) chunks.push_back(text_chunk(key, value));
  std::string out;
  Context context;
  context.out = &out;
  const PngWriter writer(context);
  if (!writer.info() ||
      !write_picture(writer.png(), writer.info(), &context, &image, chunks.data(), chunks.size())) {
    throw InternalError{
        {"image_encode", "", std::string("cannot write PNG: ") + context.message, ""}};
  }
  return out;
}

}  // namespace mere::media
