// UTF-8 and the few Unicode questions a tokenizer asks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mere {

struct CodePoint {
  char32_t value;  // U+FFFD where the bytes are not UTF-8
  size_t bytes;    // at least 1
  bool valid;
};

// The code point at `at` < text.size(). Of invalid bytes it takes the longest prefix of a valid
// sequence, or one byte, as the Unicode standard recommends for replacement.
CodePoint code_point_at(std::string_view text, size_t at);
// The code point that ends at `end` > 0 of valid UTF-8.
CodePoint code_point_before(std::string_view text, size_t end);

bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);
// `text` with invalid bytes replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);
// Appends a code point that is not a surrogate and at most U+10FFFF.
void append_utf8(std::string& out, char32_t code_point);

// Property White_Space.
bool is_white_space(char32_t code_point);
// Letters, marks, decimal and letter numbers, connector punctuation, joiners: \w of a regex.
bool is_word_character(char32_t code_point);

}  // namespace mere
