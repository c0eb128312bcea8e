// Cutting a text into words: the "pre_tokenizer" of a tokenizer.json.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "tokenizer/regex.h"

namespace mere {

// Words in order, none empty. They point into the text that was cut or into `owned`.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> owned;
};

class PreTokenizer {
 public:
  // `json` is the member "pre_tokenizer": ByteLevel, or a Sequence of Split steps that ends with
  // ByteLevel. IoError naming what else it is.
  static PreTokenizer parse(const Json& json, const std::string& source);

  // Cuts valid UTF-8 into words of raw bytes; the byte-level alphabet is left to the vocabulary.
  Words split(std::string_view text) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Step {
    std::optional<Regex> regex;  // none: keep the word whole
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    bool add_prefix_space = false;
  };
  struct Part {
    size_t begin;
    size_t end;
    bool is_match;
  };
  static Step parse_split(const Json& json, const std::string& source);
  static Step parse_byte_level(const Json& json, const std::string& source);
  static std::vector<Part> parts_of(const Step& step, std::string_view word);
  static std::vector<Part> merged(std::vector<Part> parts, Behavior behavior);
  std::vector<Step> steps_;
};

}  // namespace mere
