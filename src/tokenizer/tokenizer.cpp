#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"

namespace mere {
namespace {

// Positions inside a word are 32-bit, and no prompt is this long.
constexpr size_t kMaxTextBytes = size_t{64} << 20;

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw IoError{{"tokenizer_unsupported", source, source + ": " + what + " is not supported", ""}};
}

Json member_or_null(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? Json() : *found;
}

// Settings of a BPE model that change its results and that no byte-level tokenizer sets.
void check_model(const Json& model, const std::string& source) {
  if (!model.is_object()) refuse(source, "a tokenizer without \"model\"");
  const std::string type = json_string_or(model, "type", "BPE", source);
  if (type != "BPE") refuse(source, "model \"" + printable(type) + "\"");
  if (json_number_or(model, "dropout", 0, 1, 0, source) > 0) refuse(source, "model: dropout");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json_string_or(model, affix, "", source).empty()) {
      refuse(source, std::string("model: ") + affix);
    }
  }
  if (json_bool_or(model, "byte_fallback", false, source)) refuse(source, "model: byte_fallback");
}

void check_type(const Json& json, const char* key, bool may_be_null, const std::string& source) {
  const Json member = member_or_null(json, key);
  if (member.is_null() && may_be_null) return;
  const std::string type =
      member.is_null() ? "null" : json_string_or(member, "type", "without a type", source);
  if (type != "ByteLevel") refuse(source, std::string(key) + " \"" + printable(type) + "\"");
}

Bpe make_bpe(const TokenizerFile& file, const std::string& source) {
  const Json model = member_or_null(file.rest, "model");
  check_model(model, source);
  if (file.vocabulary.empty()) {
    throw IoError{{"tokenizer_invalid", source, source + ": the vocabulary is empty", ""}};
  }
  Bpe bpe(file.vocabulary, file.merges, json_bool_or(model, "ignore_merges", false, source),
          source);
  // A token for unknown bytes is never needed, and need not be handled, when there are none.
  if (!json_string_or(model, "unk_token", "", source).empty() && !bpe.covers_all_bytes()) {
    refuse(source, "model: unk_token with a vocabulary that lacks some bytes");
  }
  return bpe;
}

std::vector<AddedToken> select(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> out;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(out),
               [&](const AddedToken& token) { return token.normalized == normalized; });
  return out;
}

std::vector<AddedToken> in_normal_form(std::vector<AddedToken> tokens,
                                       const Normalizer& normalizer) {
  std::string storage;
  for (AddedToken& token : tokens) {
    token.content = std::string(normalizer.apply(token.content, storage));
  }
  return tokens;
}

// "pad_token": "text" or {"content": "text"}.
std::string pad_token_name(const Json& config, const std::string& source) {
  if (!config.is_object()) {
    throw IoError{{"json_invalid", source, source + ": not a JSON object", ""}};
  }
  const Json member = member_or_null(config, "pad_token");
  return member.is_object() ? json_string_or(member, "content", "", source)
                            : json_string_or(config, "pad_token", "", source);
}

}  // namespace

struct Tokenizer::Impl {
  Impl(const TokenizerFile& file, const std::string& source)
      : bpe(make_bpe(file, source)),
        normalizer(Normalizer::parse(member_or_null(file.rest, "normalizer"), source)),
        pre_tokenizer(PreTokenizer::parse(member_or_null(file.rest, "pre_tokenizer"), source)),
        added(parse_added_tokens(member_or_null(file.rest, "added_tokens"), source)),
        in_raw_text(select(added, false)),
        in_normalized_text(in_normal_form(select(added, true), normalizer)) {
    check_type(file.rest, "decoder", false, source);
    // One that only trims offsets is accepted; one that adds tokens at the ends is not.
    check_type(file.rest, "post_processor", true, source);
    size = bpe.size();
    for (const AddedToken& token : added) {
      check_agreement(token, source);
      added_text.emplace(token.id, token.content);
      added_ids.emplace(token.content, token.id);
      size = std::max<int64_t>(size, token.id + 1);
    }
  }

  // An added token may also be in the vocabulary, under the same id.
  void check_agreement(const AddedToken& token, const std::string& source) const {
    const std::optional<int32_t> model_id = bpe.id_of(token.content);
    const std::optional<std::string_view> model_token = bpe.token(token.id);
    if (model_id.value_or(token.id) == token.id &&
        model_token.value_or(token.content) == token.content) {
      return;
    }
    throw IoError{{"tokenizer_invalid", source,
                   source + ": added token \"" + printable(token.content, 60) + "\" with id " +
                       std::to_string(token.id) + " contradicts the vocabulary",
                   ""}};
  }

  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
    for (const std::string_view word : pre_tokenizer.split(text).views) bpe.encode(word, ids);
  }

  Bpe bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added;
  AddedTokenFinder in_raw_text;
  AddedTokenFinder in_normalized_text;
  std::unordered_map<int32_t, std::string> added_text;
  std::unordered_map<std::string, int32_t> added_ids;
  std::optional<int32_t> pad_id;
  int64_t size = 0;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::parse(std::string_view json, const std::string& source) {
  return Tokenizer(std::make_unique<Impl>(parse_tokenizer_file(json, source), source));
}

Tokenizer Tokenizer::open(const fs::path& folder) {
  const fs::path path = folder / "tokenizer.json";
  Tokenizer tokenizer = parse(read_file(path, kMaxJsonBytes), path.string());
  const fs::path config_path = folder / "tokenizer_config.json";
  std::error_code ec;
  if (!fs::exists(config_path, ec)) return tokenizer;
  const std::string pad = pad_token_name(parse_json_file(config_path), config_path.string());
  if (pad.empty()) return tokenizer;
  tokenizer.impl_->pad_id = tokenizer.token_id(pad);
  if (!tokenizer.impl_->pad_id) {
    throw IoError{{"tokenizer_invalid", config_path.string(),
                   config_path.string() + ": pad_token \"" + printable(pad, 60) +
                       "\" is not a token of tokenizer.json",
                   ""}};
  }
  return tokenizer;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  if (text.size() > kMaxTextBytes) {
    throw UsageError{{"text_too_long", "text",
                      "the text has " + std::to_string(text.size()) + " bytes, more than " +
                          std::to_string(kMaxTextBytes),
                      ""}};
  }
  std::string replaced;
  if (!is_valid_utf8(text)) {
    replaced = replace_invalid_utf8(text);
    text = replaced;
  }
  std::vector<int32_t> ids;
  const auto add_id = [&](int32_t id) { ids.push_back(id); };
  std::string storage;
  impl_->in_raw_text.split(
      text,
      [&](std::string_view part) {
        impl_->in_normalized_text.split(
            impl_->normalizer.apply(part, storage),
            [&](std::string_view plain) { impl_->encode_plain(plain, ids); }, add_id);
      },
      add_id);
  return ids;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string out;
  for (const int32_t id : ids) {
    if (const auto added = impl_->added_text.find(id); added != impl_->added_text.end()) {
      out += added->second;
    } else if (const std::optional<std::string_view> token = impl_->bpe.token(id)) {
      // A token outside the byte-level alphabet stands for its own text.
      out += from_byte_level(*token).value_or(std::string(*token));
    }
  }
  return out;
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  const auto added = impl_->added_ids.find(std::string(token));
  return added != impl_->added_ids.end() ? added->second : impl_->bpe.id_of(token);
}

std::optional<int32_t> Tokenizer::pad_id() const { return impl_->pad_id; }

int64_t Tokenizer::size() const { return impl_->size; }

}  // namespace mere
