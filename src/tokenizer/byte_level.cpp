#include "tokenizer/byte_level.h"

#include "tokenizer/utf8.h"

namespace mere {
namespace {

// Bytes whose Latin-1 character is visible keep it; the others get U+0100 and up in byte order.
bool keeps_its_character(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int16_t, 512> bytes;  // by code point, -1 for none
};

const Alphabet& alphabet() {
  static const Alphabet table = [] {
    Alphabet out;
    out.bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t character = keeps_its_character(byte) ? static_cast<char32_t>(byte) : next++;
      append_utf8(out.characters[static_cast<size_t>(byte)], character);
      out.bytes[character] = static_cast<int16_t>(byte);
    }
    return out;
  }();
  return table;
}

}  // namespace

const std::array<std::string, 256>& byte_level_characters() { return alphabet().characters; }

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  for (char c : bytes) out += alphabet().characters[static_cast<unsigned char>(c)];
  return out;
}

std::optional<std::string> from_byte_level(std::string_view token) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const CodePoint point = code_point_at(token, at);
    if (!point.valid || point.value >= alphabet().bytes.size()) return std::nullopt;
    const int16_t byte = alphabet().bytes[point.value];
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    at += point.bytes;
  }
  return out;
}

}  // namespace mere
