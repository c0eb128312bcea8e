#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/utf8.h"

namespace mere {
namespace {

// Finding is O(text * token length).
constexpr size_t kMaxContentBytes = 1024;

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw IoError{{"tokenizer_invalid", source, source + ": added_tokens: " + what, ""}};
}

unsigned char byte_at(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && is_word_character(code_point_before(text, begin).value);
  const bool word_after = end < text.size() && is_word_character(code_point_at(text, end).value);
  return !word_before && !word_after;
}

size_t without_space_before(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit) {
    const CodePoint point = code_point_before(text, begin);
    if (!is_white_space(point.value)) break;
    begin -= point.bytes;
  }
  return std::max(begin, limit);
}

size_t without_space_after(std::string_view text, size_t end) {
  while (end < text.size()) {
    const CodePoint point = code_point_at(text, end);
    if (!is_white_space(point.value)) break;
    end += point.bytes;
  }
  return end;
}

}  // namespace

std::vector<AddedToken> parse_added_tokens(const Json& json, const std::string& source) {
  std::vector<AddedToken> tokens;
  if (json.is_null()) return tokens;
  if (!json.is_array()) fail(source, "not a list");
  std::unordered_set<std::string> contents;
  std::unordered_set<int32_t> ids;
  for (const Json& item : json) {
    AddedToken token;
    token.id = static_cast<int32_t>(json_int(item, "id", 0, kMaxTokens - 1, source));
    token.content = json_string_or(item, "content", "", source);
    token.single_word = json_bool_or(item, "single_word", false, source);
    token.lstrip = json_bool_or(item, "lstrip", false, source);
    token.rstrip = json_bool_or(item, "rstrip", false, source);
    token.normalized =
        json_bool_or(item, "normalized", !json_bool_or(item, "special", false, source), source);
    const std::string name = "token " + std::to_string(token.id);
    if (token.content.empty()) fail(source, name + " has no content");
    if (token.content.size() > kMaxContentBytes) {
      fail(source, name + " is longer than " + std::to_string(kMaxContentBytes) + " bytes");
    }
    if (!contents.insert(token.content).second || !ids.insert(token.id).second) {
      fail(source, name + " (\"" + printable(token.content, 60) + "\") is listed twice");
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  // Normalisation may have left nothing of a content.
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    Range& range = by_first_byte_[byte_at(tokens_[i].content, 0)];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
}

// Narrows the sorted list byte by byte; a token that ends at the current depth comes first in it.
const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  const Range& range = by_first_byte_[byte_at(text, at)];
  auto begin = tokens_.begin() + range.begin;
  auto end = tokens_.begin() + range.end;
  const AddedToken* longest = nullptr;
  for (size_t depth = 1; begin != end; ++depth) {
    if (begin->content.size() == depth) {
      longest = &*begin;
      while (begin != end && begin->content.size() == depth) ++begin;
    }
    if (at + depth >= text.size()) break;
    const unsigned char next = byte_at(text, at + depth);
    begin = std::lower_bound(begin, end, next, [&](const AddedToken& token, unsigned char byte) {
      return byte_at(token.content, depth) < byte;
    });
    end = std::upper_bound(begin, end, next, [&](unsigned char byte, const AddedToken& token) {
      return byte < byte_at(token.content, depth);
    });
  }
  return longest;
}

void AddedTokenFinder::split(std::string_view text,
                             const std::function<void(std::string_view)>& text_part,
                             const std::function<void(int32_t)>& token) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* found = longest_at(text, at);
    if (found == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + found->content.size();
    at = end;
    if (begin < done || (found->single_word && !stands_alone(text, begin, end))) continue;
    if (found->lstrip) begin = without_space_before(text, begin, done);
    if (found->rstrip) end = without_space_after(text, end);
    if (begin > done) text_part(text.substr(done, begin - done));
    token(found->id);
    done = end;
  }
  if (done < text.size()) text_part(text.substr(done));
}

}  // namespace mere
