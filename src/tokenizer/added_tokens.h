// Added tokens: texts such as <|im_start|> that are found whole in a text before anything else is
// done to it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json.h"
#include "tokenizer/normalizer.h"

namespace mere {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // not beside a word character
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool normalized = true;    // is looked for in the normalised text
};

// The member "added_tokens". IoError naming `source` on an id out of range, an empty or overlong
// content, or a content or id that appears twice.
std::vector<AddedToken> parse_added_tokens(const Json& json, const std::string& source);

// Finds the longest token at the leftmost position, again and again.
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // Calls `text_part` and `token` for the parts of `text` in order; text parts are never empty.
  void split(std::string_view text, const std::function<void(std::string_view)>& text_part,
             const std::function<void(int32_t)>& token) const;

 private:
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  const AddedToken* longest_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  std::array<Range, 256> by_first_byte_{};
};

}  // namespace mere
