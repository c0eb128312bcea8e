#include "tokenizer/tokenizer.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>

#include "tiny_tokenizer.h"

#include "core/error.h"

namespace mere {
namespace {

using Ids = std::vector<int32_t>;
using test::kSpaceToken;
using test::tiny_tokenizer;

Tokenizer make(const Json& json) { return Tokenizer::parse(json.dump(), "tiny"); }

Json added(int32_t id, const std::string& content, const Json& flags = Json::object()) {
  Json token = {{"id", id}, {"content", content}, {"normalized", false}, {"special", false}};
  token.update(flags);
  return token;
}

TEST(Tokenizer, JoinsPairsInTheOrderOfTheMerges) {
  const Tokenizer tokenizer = make(tiny_tokenizer());
  EXPECT_EQ(tokenizer.encode("hello hello"), (Ids{98, 99}));
  EXPECT_EQ(tokenizer.encode("hhell"), (Ids{'h' - 32, 97}));
  EXPECT_EQ(tokenizer.encode("llll"), (Ids{96, 96}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.size(), 100);
}

TEST(Tokenizer, BothFormsOfMergesAreTheSame) {
  Json strings = tiny_tokenizer();
  strings["model"]["merges"] = {"h e", "l l", "he ll", "hell o", kSpaceToken + " hello"};
  const Tokenizer from_pairs = make(tiny_tokenizer());
  const Tokenizer from_strings = make(strings);
  for (const char* text : {"hello", " hello", "the shell, hello hell", "llhehe ll"}) {
    EXPECT_EQ(from_pairs.encode(text), from_strings.encode(text)) << text;
  }
  EXPECT_EQ(from_strings.encode("hello"), Ids{98});
}

TEST(Tokenizer, EscapesInVocabularyAndMergesAreDecoded) {
  const std::string text = tiny_tokenizer().dump(-1, ' ', /*ensure_ascii=*/true);
  ASSERT_NE(text.find("\\u0120hello"), std::string::npos);
  const Tokenizer tokenizer = Tokenizer::parse(text, "tiny");
  EXPECT_EQ(tokenizer.encode(" hello\\\""), (Ids{99, '\\' - 32, '"' - 32}));
}

TEST(Tokenizer, MembersMayComeInAnyOrder) {
  const Json json = tiny_tokenizer();
  const std::string text = R"({"model": {"merges": )" + json["model"]["merges"].dump() +
                           R"(, "vocab": )" + json["model"]["vocab"].dump() +
                           R"(}, "decoder": {"type": "ByteLevel"}, "pre_tokenizer": )" +
                           json["pre_tokenizer"].dump() + "}";
  EXPECT_EQ(Tokenizer::parse(text, "tiny").encode("hello"), Ids{98});
}

TEST(Tokenizer, IgnoreMergesTakesWholeWords) {
  Json json = tiny_tokenizer();
  json["model"]["vocab"]["lo"] = 100;
  EXPECT_EQ(make(json).encode("lo"), (Ids{'l' - 32, 'o' - 32}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(make(json).encode("lo"), Ids{100});
  EXPECT_EQ(make(json).encode("hello"), Ids{98});
}

TEST(Tokenizer, BytesOutsideTheVocabularyAreLeftOut) {
  EXPECT_EQ(make(tiny_tokenizer()).encode("he\u00e9llo"), Ids{98});
  EXPECT_EQ(make(tiny_tokenizer()).encode("\u00e9"), Ids{});
}

TEST(Tokenizer, InvalidUtf8BecomesTheReplacementCharacter) {
  Json json = tiny_tokenizer();
  json["added_tokens"] = Json::array({added(100, "\uFFFD")});
  const Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode("he\xffll"), (Ids{95, 100, 96}));
  EXPECT_EQ(tokenizer.encode("\xe2\x82"), Ids{100});                  // cut short: one replacement
  EXPECT_EQ(tokenizer.encode("\xc0\xaf"), (Ids{100, 100}));           // overlong
  EXPECT_EQ(tokenizer.encode("\xed\xa0\x80"), (Ids{100, 100, 100}));  // surrogate
}

TEST(Tokenizer, NormalizesBeforeCutting) {
  Json json = tiny_tokenizer();
  json["model"]["vocab"]["\u00c3"] = 100;  // the two bytes of U+00E9
  json["model"]["vocab"]["\u00a9"] = 101;
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(make(json).encode("e\u0301"), (Ids{100, 101}));
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({{{"type", "NFKC"}}})}};
  EXPECT_EQ(make(json).encode("\uFF48\uFF45"), Ids{95});  // full-width "he"
  json["normalizer"] = nullptr;
  EXPECT_EQ(make(json).encode("e\u0301"), Ids{'e' - 32});
}

TEST(Tokenizer, AddedTokensAreFoundFirstAndLongest) {
  Json json = tiny_tokenizer();
  json["added_tokens"] = Json::array({added(100, "ab"), added(101, "abc"), added(102, "bcd"),
                                      added(103, "<|x|>", {{"special", true}})});
  const Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode("abcd"), (Ids{101, 'd' - 32}));
  EXPECT_EQ(tokenizer.encode("abab"), (Ids{100, 100}));
  EXPECT_EQ(tokenizer.encode("<|x|>hello<|x|"), (Ids{103, 98, 28, 92, 88, 92}));
  EXPECT_EQ(tokenizer.size(), 104);
  EXPECT_EQ(tokenizer.token_id("<|x|>"), 103);
  EXPECT_EQ(tokenizer.token_id("hello"), 98);
  EXPECT_EQ(tokenizer.token_id("absent"), std::nullopt);
  EXPECT_EQ(tokenizer.pad_id(), std::nullopt);
}

TEST(Tokenizer, AddedTokenStripsWhiteSpace) {
  Json json = tiny_tokenizer();
  json["added_tokens"] = Json::array({added(200, "<a>", {{"lstrip", true}})});
  EXPECT_EQ(make(json).encode("x \u3000<a> y"), (Ids{'x' - 32, 200, 0, 'y' - 32}));
  EXPECT_EQ(make(json).encode(" <a>  <a>"), (Ids{200, 200}));
  json["added_tokens"] = Json::array({added(200, "<a>", {{"rstrip", true}})});
  EXPECT_EQ(make(json).encode("x <a>  y"), (Ids{'x' - 32, 0, 200, 'y' - 32}));
  EXPECT_EQ(make(json).encode("<a> <a> "), (Ids{200, 200}));
}

TEST(Tokenizer, AddedTokenThatIsASingleWord) {
  Json json = tiny_tokenizer();
  json["added_tokens"] = Json::array({added(200, "ab", {{"single_word", true}})});
  const Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode("ab abc xab ab"), (Ids{200, 0, 65, 66, 67, 0, 88, 65, 66, 0, 200}));
  EXPECT_EQ(tokenizer.encode("ab_ .ab."), (Ids{65, 66, 63, 0, 14, 200, 14}));
}

TEST(Tokenizer, NormalizedAddedTokenMatchesEveryForm) {
  Json json = tiny_tokenizer();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"] = Json::array({added(200, "e\u0301!", {{"normalized", true}})});
  EXPECT_EQ(make(json).encode("\u00e9!"), Ids{200});
  EXPECT_EQ(make(json).encode("e\u0301!"), Ids{200});
  json["added_tokens"] = Json::array({added(200, "e\u0301!")});
  EXPECT_EQ(make(json).encode("\u00e9!"), Ids{1});
  EXPECT_EQ(make(json).encode("e\u0301!"), Ids{200});
}

TEST(Tokenizer, DecodesBytesAddedTokensAndSkipsUnknownIds) {
  Json json = tiny_tokenizer();
  json["added_tokens"] = Json::array({added(200, "<\u00e9>")});
  const Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.decode({98, 99, 200, 150, -1, 2000000000, 1}), "hello hello<\u00e9>!");
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(Tokenizer, IsSafeToMove) {
  Tokenizer tokenizer = make(tiny_tokenizer());
  Tokenizer moved = std::move(tokenizer);
  EXPECT_EQ(moved.encode("hello"), Ids{98});
  moved = make(tiny_tokenizer());
  EXPECT_EQ(moved.decode({98}), "hello");
}

class TokenizerFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tokenizer_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  fs::path folder_;
};

TEST_F(TokenizerFolder, ReadsThePadTokenInBothForms) {
  write("tokenizer.json", tiny_tokenizer().dump());
  EXPECT_EQ(Tokenizer::open(folder_).pad_id(), std::nullopt);
  write("tokenizer_config.json", R"({"pad_token": "hello"})");
  EXPECT_EQ(Tokenizer::open(folder_).pad_id(), 98);
  write("tokenizer_config.json", R"({"pad_token": {"content": "hell", "lstrip": false}})");
  EXPECT_EQ(Tokenizer::open(folder_).pad_id(), 97);
  write("tokenizer_config.json", R"({"pad_token": null})");
  EXPECT_EQ(Tokenizer::open(folder_).pad_id(), std::nullopt);
}

TEST_F(TokenizerFolder, NamesTheFileThatIsWrong) {
  const auto message = [&] {
    try {
      Tokenizer::open(folder_);
    } catch (const IoError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message().find("tokenizer.json"), std::string::npos);
  write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_NE(message().find("tokenizer.json: not valid JSON"), std::string::npos) << message();
  write("tokenizer.json", tiny_tokenizer().dump());
  write("tokenizer_config.json", R"({"pad_token": "absent"})");
  EXPECT_NE(message().find("tokenizer_config.json: pad_token \"absent\""), std::string::npos);
  write("tokenizer_config.json", "[]");
  EXPECT_NE(message().find("tokenizer_config.json: not a JSON object"), std::string::npos);
}

// 100 kB without a cutting point: a scan of all pairs per merge would take minutes.
TEST(Tokenizer, LongWordsAreNotQuadratic) {
  Json json = tiny_tokenizer();
  json["normalizer"] = {{"type", "NFC"}};
  const Tokenizer tokenizer = make(json);
  std::string marks = "a";
  for (int i = 0; i < 25'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer.encode(std::string(100'000, 'l')).size(), 50'000U);
  EXPECT_EQ(tokenizer.encode(std::string(100'000, ' ')).size(), 100'000U);
  EXPECT_EQ(tokenizer.encode(std::string(100'000, '\n')).size(), 0U);
  EXPECT_EQ(tokenizer.encode(std::string(100'000, '<')).size(), 100'000U);
  tokenizer.encode(marks);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace mere
