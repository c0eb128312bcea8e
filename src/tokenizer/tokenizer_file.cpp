#include "tokenizer/tokenizer_file.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "core/error.h"
#include "tokenizer/utf8.h"

namespace mere {
namespace {

class Scanner {
 public:
  Scanner(std::string_view text, std::string& escaped, const std::string& source)
      : text_(text), escaped_(escaped), source_(source) {}

  size_t position() const { return at_; }

  [[noreturn]] void fail(const std::string& what) const {
    throw IoError{{"tokenizer_invalid", source_,
                   source_ + ": " + what + " at byte " + std::to_string(at_), ""}};
  }

  // The next character that is not white space, or NUL at the end.
  char peek() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail(std::string("not valid JSON: expected '") + c + "'");
  }

  // Members of an object or items of a list: calls `item` for each.
  void each(char open, char close, const std::function<void()>& item) {
    expect(open);
    if (take(close)) return;
    do item();
    while (take(','));
    expect(close);
  }

  std::string_view string() {
    expect('"');
    const size_t begin = at_;
    bool plain_ascii = true;
    bool has_escape = false;
    for (;; ++at_) {
      if (at_ >= text_.size()) fail("not valid JSON: unfinished string");
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte == '"') break;
      if (byte < 0x20) fail("not valid JSON: control character in a string");
      if (byte >= 0x80) plain_ascii = false;
      if (byte == '\\') {
        has_escape = true;
        ++at_;
      }
    }
    const std::string_view raw = text_.substr(begin, at_ - begin);
    if (!plain_ascii && !is_valid_utf8(raw)) fail("not valid JSON: string is not UTF-8");
    ++at_;
    return has_escape ? without_escapes(raw) : raw;
  }

  int64_t integer() {
    peek();
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = value * 10 + (text_[at_] - '0');
      if (value > kMaxTokens) fail("an id above " + std::to_string(kMaxTokens));
      ++at_;
    }
    const bool leading_zero = at_ - begin > 1 && text_[begin] == '0';
    if (at_ == begin || leading_zero) fail("not an id");
    return value;
  }

  // Passes over any value. Only strings and brackets are understood: parse_json checks the rest.
  void skip_value() {
    size_t depth = 0;
    do {
      const char c = peek();
      if (c == '"') {
        string();
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (depth == 0) fail("not valid JSON");
        --depth;
        ++at_;
      } else if (c == '\0') {
        fail("not valid JSON: unexpected end");
      } else {
        ++at_;
        at_ = std::min(text_.size(), text_.find_first_of(",:]}\"[{ \t\r\n", at_));
        if (depth > 0) continue;
        return;
      }
    } while (depth > 0);
  }

 private:
  uint32_t hex4(std::string_view raw, size_t at) const {
    uint32_t value = 0;
    for (size_t i = at; i < at + 4; ++i) {
      const char c = i < raw.size() ? raw[i] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("not valid JSON: bad \\u escape");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return value;
  }

  // Decoded text is never longer than its escapes, so `escaped_` was reserved once and the views
  // into it stay valid.
  std::string_view without_escapes(std::string_view raw) {
    const size_t begin = escaped_.size();
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        escaped_ += raw[i];
        continue;
      }
      static constexpr std::string_view kNames = "\"\\/bfnrt";
      static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
      const char name = raw[++i];
      if (const size_t known = kNames.find(name); known != std::string_view::npos) {
        escaped_ += kValues[known];
        continue;
      }
      if (name != 'u') fail("not valid JSON: bad escape");
      uint32_t unit = hex4(raw, i + 1);
      i += 4;
      if (unit >= 0xD800 && unit <= 0xDBFF && raw.substr(i + 1, 2) == "\\u") {
        const uint32_t low = hex4(raw, i + 3);
        if (low < 0xDC00 || low > 0xDFFF) fail("not valid JSON: half a surrogate pair");
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        i += 6;
      } else if (unit >= 0xD800 && unit <= 0xDFFF) {
        fail("not valid JSON: half a surrogate pair");
      }
      append_utf8(escaped_, unit);
    }
    return std::string_view(escaped_).substr(begin);
  }

  std::string_view text_;
  std::string& escaped_;
  const std::string& source_;
  size_t at_ = 0;
};

// An object member that is being read: calls `value` with the key, after the colon.
void each_member(Scanner& scanner, const std::function<void(std::string_view)>& value) {
  scanner.each('{', '}', [&] {
    const std::string_view key = scanner.string();
    scanner.expect(':');
    value(key);
  });
}

void scan_vocabulary(Scanner& scanner, std::vector<VocabularyEntry>& out) {
  each_member(scanner, [&](std::string_view token) {
    if (out.size() >= static_cast<size_t>(kMaxTokens)) scanner.fail("too many tokens");
    out.push_back({token, static_cast<int32_t>(scanner.integer())});
  });
}

Bpe::Merge scan_merge(Scanner& scanner) {
  if (scanner.peek() == '"') {
    const std::string_view both = scanner.string();
    const size_t space = both.find(' ');
    if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
      scanner.fail("a merge that is not two tokens with a space between");
    }
    return {both.substr(0, space), both.substr(space + 1)};
  }
  scanner.expect('[');
  const std::string_view left = scanner.string();
  scanner.expect(',');
  const std::string_view right = scanner.string();
  scanner.expect(']');
  return {left, right};
}

void scan_merges(Scanner& scanner, std::vector<Bpe::Merge>& out) {
  scanner.each('[', ']', [&] {
    if (out.size() >= static_cast<size_t>(kMaxTokens)) scanner.fail("too many merges");
    out.push_back(scan_merge(scanner));
  });
}

// Without its merges a tokenizer would split everything into bytes and give other pictures.
void check_merges(const Json& rest, const std::string& source) {
  const auto model = rest.is_object() ? rest.find("model") : rest.end();
  if (model == rest.end() || !model->is_object()) return;  // refused later, by name
  const auto merges = model->find("merges");
  if (merges != model->end() && merges->is_array()) return;
  throw IoError{{"tokenizer_unsupported", source, source + ": model has no list of merges", ""}};
}

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& source) {
  TokenizerFile file;
  if (text.size() > kMaxJsonBytes) {
    throw IoError{{"file_too_large", source,
                   source + ": more than " + std::to_string(kMaxJsonBytes) + " bytes of JSON", ""}};
  }
  file.escaped.reserve(text.size());
  Scanner scanner(text, file.escaped, source);
  std::string rest;
  size_t copied = 0;
  // Copies what lies before a list, and an empty one for it.
  const auto replace = [&](size_t begin, std::string_view empty) {
    rest.append(text.substr(copied, begin - copied)).append(empty);
    copied = scanner.position();
  };
  each_member(scanner, [&](std::string_view key) {
    if (key != "model" || scanner.peek() != '{') return scanner.skip_value();
    each_member(scanner, [&](std::string_view member) {
      const char first = scanner.peek();
      const size_t begin = scanner.position();
      if (member == "vocab" && first == '{') {
        scan_vocabulary(scanner, file.vocabulary);
        replace(begin, "{}");
      } else if (member == "merges" && first == '[') {
        scan_merges(scanner, file.merges);
        replace(begin, "[]");
      } else {
        scanner.skip_value();
      }
    });
  });
  rest.append(text.substr(copied));
  file.rest = parse_json(rest, source);
  check_merges(file.rest, source);
  return file;
}

}  // namespace mere
