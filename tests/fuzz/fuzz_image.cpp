// Picture readers on arbitrary bytes: they either give a whole picture or throw mere::Error.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <zlib.h>

#include "core/error.h"
#include "media/image.h"

namespace {

void read_both_ways(std::string_view bytes) {
  try {
    mere::decode_image_info(bytes, "fuzz");
  } catch (const mere::Error&) {
  }
  try {
    const mere::Image image = mere::decode_image(bytes, "fuzz");
    const auto expected = static_cast<size_t>(image.width * image.height * 3);
    if (image.width <= 0 || image.height <= 0 || image.rgb.size() != expected) std::abort();
  } catch (const mere::Error&) {
  }
}

// Sets the checksum of every PNG chunk right: nearly all changes of a PNG would end there.
std::string with_right_checksums(std::string bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  size_t at = 8;
  while (bytes.size() - at >= 12) {
    const size_t length = size_t{byte(at)} << 24 | size_t{byte(at + 1)} << 16 |
                          size_t{byte(at + 2)} << 8 | size_t{byte(at + 3)};
    if (length > bytes.size() - at - 12) break;
    const auto* covered = reinterpret_cast<const Bytef*>(bytes.data() + at + 4);
    const uLong crc = crc32(0, covered, static_cast<uInt>(length + 4));
    at += 8 + length;
    for (int shift = 24; shift >= 0; shift -= 8) bytes[at++] = static_cast<char>(crc >> shift);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_both_ways(bytes);
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) {
    read_both_ways(with_right_checksums(std::string(bytes)));
  }
  return 0;
}
