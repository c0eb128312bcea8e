// The printable alphabet of byte-level BPE: each of the 256 bytes is written as one character, so
// that every token of a vocabulary is readable text. Source: GPT-2 encoder.py, bytes_to_unicode.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mere {

// The character of each byte as UTF-8, e.g. " " for 0x20 is "\u0120".
const std::array<std::string, 256>& byte_level_characters();

std::string to_byte_level(std::string_view bytes);
// nullopt when a character of `token` is outside the alphabet.
std::optional<std::string> from_byte_level(std::string_view token);

}  // namespace mere
