// Every way in which a tokenizer.json can be wrong is a one-line IoError that names the file.
#include <functional>
#include <gtest/gtest.h>

#include "tiny_tokenizer.h"

#include "core/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer.h"

namespace mere {
namespace {

using test::tiny_tokenizer;

std::string error_of(const std::string& text) {
  try {
    Tokenizer::parse(text, "bad.json");
  } catch (const IoError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("bad.json"), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return what;
  }
  return "no error";
}

struct Damage {
  const char* name;
  std::function<void(Json&)> apply;
  const char* expected;
};

class DamagedTokenizer : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedTokenizer, IsRefusedByName) {
  Json json = tiny_tokenizer();
  GetParam().apply(json);
  const std::string error = error_of(json.dump());
  EXPECT_NE(error.find(GetParam().expected), std::string::npos) << error;
}

Json split(const char* pattern_json, const char* behavior) {
  return {{"type", "Split"},
          {"pattern", Json::parse(pattern_json)},
          {"behavior", behavior},
          {"invert", false}};
}

Json sequence(const Json& first, const Json& second) {
  return {{"type", "Sequence"}, {"pretokenizers", {first, second}}};
}

const Json kByteLevel = {{"type", "ByteLevel"}, {"add_prefix_space", false}};

INSTANTIATE_TEST_SUITE_P(
    Members, DamagedTokenizer,
    ::testing::Values(
        Damage{"NoModel", [](Json& j) { j.erase("model"); }, "model"},
        Damage{"ModelIsAList", [](Json& j) { j["model"] = Json::array(); }, "model"},
        Damage{"OtherModel", [](Json& j) { j["model"]["type"] = "Unigram"; }, "Unigram"},
        Damage{"EmptyVocabulary", [](Json& j) { j["model"]["vocab"] = Json::object(); }, "empty"},
        Damage{"VocabularyIsAList", [](Json& j) { j["model"]["vocab"] = Json::array({1}); },
 "empty"},
        Damage{"NoMerges", [](Json& j) { j["model"].erase("merges"); }, "merges"},
        Damage{"MergesAreText", [](Json& j) { j["model"]["merges"] = "abc"; }, "merges"},
        Damage{"Dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }, "dropout"},
        Damage{"Suffix", [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; },
               "end_of_word_suffix"},
        Damage{"Prefix", [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; },
               "continuing_subword_prefix"},
        Damage{"ByteFallback", [](Json& j) { j["model"]["byte_fallback"] = true; },
               "byte_fallback"},
        Damage{"UnknownToken", [](Json& j) { j["model"]["unk_token"] = "!"; }, "unk_token"},
        Damage{"NegativeId", [](Json& j) { j["model"]["vocab"]["zz"] = -1; }, "not an id"},
        Damage{"FractionalId", [](Json& j) { j["model"]["vocab"]["zz"] = 1.5; }, "expected"},
        Damage{"TextId", [](Json& j) { j["model"]["vocab"]["zz"] = "1"; }, "not an id"},
        Damage{"HugeId", [](Json& j) { j["model"]["vocab"]["zz"] = uint64_t{1} << 62; }, "an id"},
        Damage{"IdAtTheLimit", [](Json& j) { j["model"]["vocab"]["zz"] = kMaxTokens; }, "zz"},
        Damage{"SharedId", [](Json& j) { j["model"]["vocab"]["zz"] = 98; }, "have one id, 98"},
        Damage{"MergeOfUnknownToken", [](Json& j) { j["model"]["merges"] = Json::array({"h zz"}); }, "\"zz\""},
        Damage{"MergeIntoUnknownToken", [](Json& j) { j["model"]["merges"] = Json::array({"a b"}); }, "\"ab\""},
        Damage{"MergeOfThree", [](Json& j) { j["model"]["merges"] = Json::array({"h e l"}); }, "merge"},
        Damage{"MergeOfOne", [](Json& j) { j["model"]["merges"] = Json::array({"he"}); }, "merge"},
        Damage{"MergeList3", [](Json& j) { j["model"]["merges"] = Json::array({{"h", "e", "l"}}); }, "expected"},
        Damage{"MergeNumber", [](Json& j) { j["model"]["merges"] = Json::array({1}); }, "expected"},
        Damage{"OtherNormalizer", [](Json& j) { j["normalizer"] = {{"type", "Lowercase"}}; },
               "Lowercase"},
        Damage{"NormalizerIsText", [](Json& j) { j["normalizer"] = "NFC"; }, "not a JSON object"},
        Damage{"NoPreTokenizer", [](Json& j) { j["pre_tokenizer"] = nullptr; }, "pre-tokenizer"},
        Damage{"OtherPreTokenizer", [](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; },
               "Metaspace"},
        Damage{"NoByteLevel",
               [](Json& j) { j["pre_tokenizer"] = split(R"({"Regex": "a"})", "Isolated"); },
               "ByteLevel"},
        Damage{"AfterByteLevel",
               [](Json& j) {
                 j["pre_tokenizer"] = sequence(kByteLevel, split(R"({"Regex": "a"})", "Isolated"));
               },
               "comes after ByteLevel"},
        Damage{"Behavior",
               [](Json& j) {
                 j["pre_tokenizer"] = sequence(split(R"({"Regex": "a"})", "Glued"), kByteLevel);
               },
               "Glued"},
        Damage{"PatternKind",
               [](Json& j) {
                 j["pre_tokenizer"] = sequence(split(R"({"Glob": "a"})", "Isolated"), kByteLevel);
               },
               "pattern"},
        Damage{"PatternIsNotClosed",
               [](Json& j) {
                 j["pre_tokenizer"] = sequence(split(R"({"Regex": "(a"})", "Isolated"), kByteLevel);
               },
               "pattern"},
        Damage{"NoDecoder", [](Json& j) { j.erase("decoder"); }, "decoder"},
        Damage{"OtherDecoder", [](Json& j) { j["decoder"] = {{"type", "WordPiece"}}; },
               "WordPiece"},
        Damage{"PostProcessorThatAddsTokens",
               [](Json& j) { j["post_processor"] = {{"type", "TemplateProcessing"}}; },
               "TemplateProcessing"},
        Damage{"AddedTokensAreText", [](Json& j) { j["added_tokens"] = "x"; }, "added_tokens"},
        Damage{"AddedWithoutId", [](Json& j) { j["added_tokens"] = Json::array({{{"content", "x"}}}); },
               "\"id\" is missing"},
        Damage{"AddedHugeId",
               [](Json& j) { j["added_tokens"] = Json::array({{{"content", "x"}, {"id", 1 << 30}}}); },
               "\"id\" is outside"},
        Damage{"AddedEmpty", [](Json& j) { j["added_tokens"] = Json::array({{{"content", ""}, {"id", 7}}}); },
               "no content"},
        Damage{"AddedTooLong",
               [](Json& j) {
                 j["added_tokens"] = Json::array({{{"content", std::string(2000, 'x')}, {"id", 7}}});
               },
               "longer than"},
        Damage{"AddedTwice",
               [](Json& j) {
                 const Json token = {{"content", "<a>"}, {"id", 200}};
                 j["added_tokens"] = {token, token};
               },
               "listed twice"},
        Damage{"AddedContradictsText",
               [](Json& j) { j["added_tokens"] = Json::array({{{"content", "hello"}, {"id", 200}}}); },
               "contradicts"},
        Damage{"AddedContradictsId",
               [](Json& j) { j["added_tokens"] = Json::array({{{"content", "<a>"}, {"id", 98}}}); },
               "contradicts"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DamagedTokenizerText, BrokenJson) {
  const std::string good = tiny_tokenizer().dump();
  // Every prefix: cut anywhere, it is an error and nothing worse.
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_NE(error_of(good.substr(0, length)), "no error") << length;
  }
  EXPECT_NE(error_of(good + "x"), "no error");
  EXPECT_NE(error_of("[]"), "no error");
  EXPECT_NE(error_of(std::string(100'000, '[')), "no error");
  EXPECT_NE(error_of("{\"a\":" + std::string(100'000, '[')), "no error");
  EXPECT_NE(error_of("{\"a\":]}"), "no error");
}

std::string with_vocabulary(const std::string& vocabulary) {
  return R"({"model":{"vocab":)" + vocabulary +
         R"(,"merges":[]},"decoder":{"type":"ByteLevel"},)"
         R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})";
}

TEST(DamagedTokenizerText, BrokenVocabulary) {
  EXPECT_EQ(error_of(with_vocabulary(R"({"a":1})")), "no error");
  for (const char* vocabulary : {
           R"({"a":1,"a":2})",       // twice
           R"({"a":1,"\u0061":2})",  // twice, once escaped
           R"({"a":01})",
           R"({"a":+1})",
           R"({"a":1,})",
           R"({"a":1 "b":2})",
           R"({a:1})",
           R"({"a\q":1})",
           R"({"a\u12":1})",
           R"({"a\ud800":1})",
           R"({"\ud800\u0041":1})",
           R"({"a\)",
           "{\"a\n\":1}",
           "{\"a\xff\":1}",
           "{\"a\xc3\":1}",
       }) {
    EXPECT_NE(error_of(with_vocabulary(vocabulary)), "no error") << vocabulary;
  }
}

TEST(DamagedTokenizerText, ModelGivenTwice) {
  const std::string good = with_vocabulary(R"({"a":1})");
  const std::string twice = good.substr(0, good.size() - 1) + R"(,"model":{"vocab":{"b":2}}})";
  EXPECT_NE(error_of(twice).find("appears twice"), std::string::npos) << error_of(twice);
}

TEST(DamagedTokenizerText, HostileNamesDoNotReachTheTerminal) {
  const std::string error = error_of(with_vocabulary(R"({"\u001b[31m\n":1,"\u001b[31m\n":2})"));
  EXPECT_NE(error.find("appears twice"), std::string::npos);
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace mere
