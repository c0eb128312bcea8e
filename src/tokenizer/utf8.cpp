#include "tokenizer/utf8.h"

#include <algorithm>
#include <utf8proc.h>

namespace mere {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

unsigned char byte_at(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// What a lead byte promises: length, and the range of the second byte, which excludes overlong
// forms, surrogates and values above U+10FFFF. Length 0 is no lead byte.
struct Lead {
  size_t length;
  unsigned char low;
  unsigned char high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  const unsigned char first = byte_at(text, at);
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {kReplacement, 1, false};
  if (lead.length == 1) return {first, 1, true};
  char32_t value = first & (0xFFU >> (lead.length + 1));
  for (size_t i = 1; i < lead.length; ++i) {
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (at + i >= text.size() || byte_at(text, at + i) < low || byte_at(text, at + i) > high) {
      return {kReplacement, i, false};
    }
    value = (value << 6) | (byte_at(text, at + i) & 0x3FU);
  }
  return {value, lead.length, true};
}

CodePoint code_point_before(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && (byte_at(text, start) & 0xC0) == 0x80) --start;
  return code_point_at(text, start);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (!point.valid) return false;
    at += point.bytes;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.valid) {
      out.append(text.substr(at, point.bytes));
    } else {
      append_utf8(out, kReplacement);
    }
    at += point.bytes;
  }
  return out;
}

void append_utf8(std::string& out, char32_t code_point) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
    return;
  }
  const int tail = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  const auto mark = (0xF0U << (3 - tail)) & 0xFFU;
  out += static_cast<char>(mark | (code_point >> (6 * tail)));
  for (int i = tail - 1; i >= 0; --i) {
    out += static_cast<char>(0x80U | ((code_point >> (6 * i)) & 0x3FU));
  }
}

bool is_white_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || (code_point >= '\t' && code_point <= '\r');
  if (code_point == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_word_character(char32_t code_point) {
  if (code_point == 0x200C || code_point == 0x200D) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace mere
