// A regular expression of a tokenizer.json, run by PCRE2 with the meaning Oniguruma gives it.
//
// Tokenizer files are written for Oniguruma. Where the two differ silently (\s, \w, ^, $) the
// pattern is rewritten; constructs that mean something else in PCRE2 are refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mere {

class Regex {
 public:
  enum class Syntax { kPattern, kLiteral };

  // IoError naming `source` when the pattern does not compile, is too long, or is refused.
  Regex(std::string_view pattern, Syntax syntax, const std::string& source);

  struct Span {
    size_t begin;
    size_t end;
  };
  // Successive matches in `text`, which must be valid UTF-8. An empty match right after another
  // match does not count. IoError when the pattern needs more steps than the text can deserve.
  // Safe to call from several threads.
  std::vector<Span> matches(std::string_view text) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string source_;
};

}  // namespace mere
