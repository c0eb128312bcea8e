// Reading a tokenizer.json quickly.
//
// Nearly all of such a file is the vocabulary and the merges, hundreds of thousands of short
// strings for which a tree of JSON values costs a second. They are scanned straight into lists; the
// rest goes through parse_json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "tokenizer/bpe.h"

namespace mere {

struct TokenizerFile {
  std::vector<VocabularyEntry> vocabulary;  // "model": {"vocab": {token: id}}
  std::vector<Bpe::Merge> merges;           // "model": {"merges": ["a b" or ["a", "b"]]}
  Json rest;            // everything else, with an empty vocab and empty merges in their places
  std::string escaped;  // owns the strings that were written with escapes
};

// The lists point into `text` and into `escaped`. IoError naming `source` when the text is not JSON
// or the two lists have another form.
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& source);

}  // namespace mere
