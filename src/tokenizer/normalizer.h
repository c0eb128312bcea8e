// Unicode normalisation of a tokenizer.json: NFC, NFKC, or a Sequence of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace mere {

class Normalizer {
 public:
  // `json` is the member "normalizer", null included. IoError naming the type when it is another.
  static Normalizer parse(const Json& json, const std::string& source);

  // `text` (valid UTF-8) in normal form: either `text` itself or a view of `storage`.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  enum class Form { kNfc, kNfkc };
  std::vector<Form> forms_;
};

}  // namespace mere
