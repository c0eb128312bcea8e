// tokenizer.json readers on arbitrary bytes: they give a tokenizer that encodes and decodes, or
// throw mere::Error.
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const mere::Tokenizer tokenizer = mere::Tokenizer::parse(bytes, "fuzz");
    for (const std::string_view text :
         {std::string_view("a red apple, it's 12:34 \u00e9e\u0301 \u4e2d\u6587 \U0001f600\n\n  x"),
          std::string_view("<|im_start|>user\n\xff\xed\xa0\x80<|im_end|>"), bytes.substr(0, 256)}) {
      try {
        tokenizer.decode(tokenizer.encode(text));
      } catch (const mere::Error&) {
      }
    }
  } catch (const mere::Error&) {
  }
  return 0;
}
