#include "media/text.h"

#include <algorithm>

#include "core/error.h"

namespace mere::media {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr std::string_view kSeparator = ": ";
constexpr size_t kMaxKeyBytes = 79;  // of PNG

// The code point at `i`, which moves past it; nullopt, one byte on, when it is ill-formed
// (overlong, surrogate, above U+10FFFF, cut off).
std::optional<char32_t> next_code_point(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  const size_t start = i++;
  if (lead < 0x80) return lead;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || length > text.size() - start) return std::nullopt;
  char32_t code = lead & (0x7F >> length);
  for (size_t k = start + 1; k < start + length; ++k) {
    if ((byte(k) & 0xC0) != 0x80) return std::nullopt;
    code = code << 6 | (byte(k) & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return std::nullopt;
  }
  i = start + length;
  return code;
}

void append_utf8(std::string& out, char32_t code) {
  if (code == 0) code = kReplacement;
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  constexpr unsigned char kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[length] | code >> (6 * (length - 1)));
  for (int k = length - 2; k >= 0; --k) out += static_cast<char>(0x80 | ((code >> (6 * k)) & 0x3F));
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (!next_code_point(text, i)) return false;
  }
  return true;
}

std::string clean_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    append_utf8(out, next_code_point(text, i).value_or(kReplacement));
  }
  return out;
}

std::string utf8_or_latin1(std::string_view text) {
  return is_utf8(text) ? clean_utf8(text) : latin1_to_utf8(text);
}

std::string latin1_to_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) append_utf8(out, static_cast<unsigned char>(c));
  return out;
}

std::optional<std::string> utf8_to_latin1(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t code = next_code_point(text, i).value_or(kReplacement);
    const bool allowed = code == '\t' || code == '\n' || (code >= 0x20 && code <= 0x7E) ||
                         (code >= 0xA0 && code <= 0xFF);
    if (!allowed) return std::nullopt;
    out += static_cast<char>(code);
  }
  return out;
}

std::string utf16_to_utf8(std::string_view bytes, ByteOrder order) {
  if (bytes.starts_with("\xFE\xFF") || bytes.starts_with("\xFF\xFE")) {
    order = bytes[0] == '\xFE' ? ByteOrder::kBig : ByteOrder::kLittle;
    bytes.remove_prefix(2);
  }
  const ByteView view(bytes, order);
  std::string out;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    char32_t code = *view.u16(i);
    if (code >= 0xD800 && code <= 0xDFFF) {
      const char32_t low = view.u16(i + 2).value_or(0);
      const bool paired = code <= 0xDBFF && low >= 0xDC00 && low <= 0xDFFF;
      code = paired ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : kReplacement;
      if (paired) i += 2;
    }
    append_utf8(out, code);
  }
  return out;
}

std::string utf8_to_utf16le(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char32_t code = next_code_point(text, i).value_or(kReplacement);
    if (code < 0x10000) {
      append_le(out, code, 2);
    } else {
      append_le(out, 0xD800 + ((code - 0x10000) >> 10), 2);
      append_le(out, 0xDC00 + ((code - 0x10000) & 0x3FF), 2);
    }
  }
  return out;
}

bool is_text_key(std::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes || key.front() == ' ' || key.back() == ' ' ||
      key.find("  ") != std::string_view::npos) {
    return false;
  }
  return std::all_of(key.begin(), key.end(), [](char c) { return c >= 32 && c < 127 && c != ':'; });
}

ImageText checked_text(const ImageText& text) {
  ImageText out;
  for (const auto& [key, value] : text) {
    if (!is_text_key(key)) {
      throw InternalError{{"image_text_key", key,
                           "'" + key + "' cannot be the name of a picture's text entry", ""}};
    }
    out.emplace_back(key, clean_utf8(value));
  }
  return out;
}

std::pair<std::string, std::string> split_entry(std::string_view line) {
  const size_t end = line.find(kSeparator);
  if (end == std::string_view::npos || !is_text_key(line.substr(0, end))) {
    return {"Comment", std::string(line)};
  }
  return {std::string(line.substr(0, end)), std::string(line.substr(end + kSeparator.size()))};
}

std::string join_lines(const ImageText& text) {
  std::string out;
  for (const auto& [key, value] : text) {
    if (!out.empty()) out += '\n';
    out += key;
    out += kSeparator;
    for (char c : value) {
      out += c;
      if (c == '\n') out += ' ';
    }
  }
  return out;
}

std::optional<ImageText> split_lines(std::string_view lines) {
  ImageText out;
  while (true) {
    const size_t end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    if (!out.empty() && line.starts_with(' ')) {
      out.back().second += '\n';
      out.back().second += line.substr(1);
    } else {
      const size_t key_end = line.find(kSeparator);
      if (key_end == std::string_view::npos || !is_text_key(line.substr(0, key_end))) {
        return std::nullopt;
      }
      out.push_back(split_entry(line));
    }
    if (end == std::string_view::npos) return out;
    lines.remove_prefix(end + 1);
  }
}

}  // namespace mere::media
