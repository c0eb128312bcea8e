// Picture readers on arbitrary bytes: they either give a whole picture or throw mere::Error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "media/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
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
  return 0;
}
