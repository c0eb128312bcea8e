// Prompt to token ids: one user message, generation prompt on, thinking off, padded on the right.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace mere::klein {

struct TokenizedPrompt {
  std::vector<int32_t> ids;  // max_length values, padded with <|endoftext|>
  int64_t valid = 0;         // real tokens at the front
  bool truncated = false;    // the right end, with the assistant suffix, was cut
};

// The prompt is not stripped, and special-token text inside it becomes special tokens.
std::string render_prompt(const std::string& prompt);
TokenizedPrompt tokenize_prompt(const Tokenizer& tokenizer, const std::string& prompt,
                                int64_t max_length);

}  // namespace mere::klein
