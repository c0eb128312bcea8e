#include "families/klein/prompt.h"

#include "core/error.h"

namespace mere::klein {

std::string render_prompt(const std::string& prompt) {
  return "<|im_start|>user\n" + prompt +
         "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
}

TokenizedPrompt tokenize_prompt(const Tokenizer& tokenizer, const std::string& prompt,
                                int64_t max_length) {
  const std::optional<int32_t> named = tokenizer.pad_id();
  const std::optional<int32_t> pad = named ? named : tokenizer.token_id("<|endoftext|>");
  if (!pad) {
    throw IoError{{"tokenizer_unsupported", "tokenizer",
                   "the tokenizer has no padding token (<|endoftext|>)", ""}};
  }
  TokenizedPrompt out;
  out.ids = tokenizer.encode(render_prompt(prompt));
  out.truncated = static_cast<int64_t>(out.ids.size()) > max_length;
  out.valid = out.truncated ? max_length : static_cast<int64_t>(out.ids.size());
  out.ids.resize(static_cast<size_t>(max_length), *pad);
  return out;
}

}  // namespace mere::klein
