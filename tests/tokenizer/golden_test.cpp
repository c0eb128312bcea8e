// Ids computed by the reference tokenizer library.
#include <cstring>
#include <gtest/gtest.h>

#include "core/json.h"
#include "tokenizer/tokenizer.h"

namespace mere {
namespace {

fs::path klein() { return fs::path(MERE_FIXTURES) / "klein"; }

void check_cases(const char* cases, const char* model) {
  const Json file = parse_json_file(klein() / "cases" / cases);
  const Tokenizer tokenizer = Tokenizer::open(klein() / model / "tokenizer");
  EXPECT_EQ(tokenizer.pad_id(), file.at("pad_id").get<int32_t>());
  EXPECT_EQ(tokenizer.token_id("<|im_end|>"), file.at("eos_id").get<int32_t>());
  ASSERT_GE(file.at("raw").size(), 30U);
  ASSERT_GE(file.at("chat").size(), 30U);
  for (const Json& row : file.at("raw")) {
    const auto text = row.at("text").get<std::string>();
    const auto ids = row.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text), ids) << text;
    EXPECT_EQ(tokenizer.decode(ids), row.at("decoded").get<std::string>());
  }
  for (const Json& row : file.at("chat")) {
    const auto text = row.at("rendered").get<std::string>();
    std::vector<int32_t> ids = tokenizer.encode(text);
    ids.resize(std::min(ids.size(), row.at("max_length").get<size_t>()));
    EXPECT_EQ(ids, row.at("ids").get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(ids.size(), row.at("valid").get<size_t>());
  }
}

TEST(TokenizerGolden, KleinCases) { check_cases("tokenizer.json", "model"); }

TEST(TokenizerGolden, KleinBaseCases) { check_cases("tokenizer_model_base.json", "model_base"); }

// Tensor token_ids (I32) of a case file, read by hand: this layer does not know tensors.
std::vector<int32_t> token_ids_of(const std::string& file, const Json& header, size_t data) {
  const auto offsets = header.at("token_ids").at("data_offsets").get<std::vector<size_t>>();
  std::vector<int32_t> ids((offsets.at(1) - offsets.at(0)) / sizeof(int32_t));
  std::memcpy(ids.data(), file.data() + data + offsets.at(0), ids.size() * sizeof(int32_t));
  return ids;
}

TEST(TokenizerGolden, EmbeddedModelCases) {
  const fs::path model = fs::path(MERE_MODELS) / "image-emoji-nano";
  const Tokenizer tokenizer = Tokenizer::open(model / "tokenizer");
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(model / "cases")) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string file = read_file(entry.path(), size_t{16} << 20);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
    const Json header = parse_json(std::string_view(file).substr(8, header_bytes), "case");
    const Json parameters =
        parse_json(header.at("__metadata__").at("case").get<std::string>(), "case");
    const std::string text = "<|im_start|>user\n" + parameters.at("prompt").get<std::string>() +
                             "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    EXPECT_EQ(tokenizer.encode(text), token_ids_of(file, header, 8 + header_bytes)) << text;
    ++cases;
  }
  EXPECT_GE(cases, 3);
}

}  // namespace
}  // namespace mere
