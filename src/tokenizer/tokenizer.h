// Byte-level BPE tokenizer read from a Hugging Face tokenizer.json.
//
//   const Tokenizer tokenizer = Tokenizer::open(model / "tokenizer");
//   const std::vector<int32_t> ids = tokenizer.encode("a red apple");
//
// Supported: model BPE (merges as "a b" strings or [a, b] pairs, ignore_merges), normalizer
// NFC/NFKC or none or a Sequence of them, pre-tokenizers Split (regex, by PCRE2) / ByteLevel /
// Sequence, added tokens (special or not, matched as whole tokens before anything else; lstrip,
// rstrip, single_word, normalized), decoder ByteLevel. Anything else in the file is an IoError that
// names it: a tokenizer that is almost right gives wrong pictures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"

namespace mere {

class Tokenizer {
 public:
  // `folder` holds tokenizer.json and, optionally, tokenizer_config.json.
  static Tokenizer open(const fs::path& folder);
  // `json` is the text of a tokenizer.json; `source` names it in errors.
  static Tokenizer parse(std::string_view json, const std::string& source);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Token ids of `text`, which is taken as UTF-8 (invalid bytes become U+FFFD). Special-token text
  // inside it is parsed as special tokens. No token is added at the ends. UsageError when the text
  // has more than 64 MiB; IoError when the file's own regex needs more steps than a text can
  // deserve. Safe to call from several threads.
  std::vector<int32_t> encode(std::string_view text) const;
  // Bytes of `ids`, added tokens as their text; unknown ids are skipped.
  std::string decode(const std::vector<int32_t>& ids) const;

  std::optional<int32_t> token_id(std::string_view token) const;
  // The padding token of tokenizer_config.json ("pad_token"), when the folder names one.
  std::optional<int32_t> pad_id() const;
  // One more than the largest id.
  int64_t size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mere
