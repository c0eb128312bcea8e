// Expected words were computed by the reference tokenizer library.
#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace mere {
namespace {

using List = std::vector<std::string>;

List cut(const Json& split, const std::string& text) {
  Json members = Json::array();
  if (!split.is_null()) members.push_back(split);
  members.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  const PreTokenizer pre_tokenizer =
      PreTokenizer::parse({{"type", "Sequence"}, {"pretokenizers", members}}, "test");
  const Words words = pre_tokenizer.split(text);
  return {words.views.begin(), words.views.end()};
}

Json split(const char* kind, const char* pattern, const char* behavior, bool invert) {
  return {{"type", "Split"},
          {"pattern", {{kind, pattern}}},
          {"behavior", behavior},
          {"invert", invert}};
}

TEST(PreTokenizer, SplitBehaviors) {
  const struct {
    const char* behavior;
    bool invert;
    List words;
  } kCases[] = {
      {"Removed", false, {"a", "b", "c"}},
      {"Removed", true, {"-", "-", "-", "-"}},
      {"Isolated", false, {"a", "-", "-", "b", "-", "c", "-"}},
      {"Isolated", true, {"a", "-", "-", "b", "-", "c", "-"}},
      {"MergedWithPrevious", false, {"a-", "-", "b-", "c-"}},
      {"MergedWithPrevious", true, {"a", "-", "-b", "-c", "-"}},
      {"MergedWithNext", false, {"a", "-", "-b", "-c", "-"}},
      {"MergedWithNext", true, {"a-", "-", "b-", "c-"}},
      {"Contiguous", false, {"a", "--", "b", "-", "c", "-"}},
      {"Contiguous", true, {"a", "--", "b", "-", "c", "-"}},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(cut(split("Regex", "-", c.behavior, c.invert), "a--b-c-"), c.words)
        << c.behavior << (c.invert ? " inverted" : "");
  }
  EXPECT_EQ(cut(split("Regex", "-+", "MergedWithPrevious", false), "-a--b"),
            (List{"-", "a--", "b"}));
  EXPECT_EQ(cut(split("Regex", "-+", "MergedWithNext", false), "-a--b"), (List{"-a", "--b"}));
}

TEST(PreTokenizer, EmptyMatchesCutWithoutTakingAnything) {
  EXPECT_EQ(cut(split("Regex", "(?=x)", "Isolated", false), "axbx"), (List{"a", "xb", "x"}));
  EXPECT_EQ(cut(split("Regex", "(?=x)", "Removed", false), "axbx"), (List{"a", "xb", "x"}));
  EXPECT_EQ(cut(split("Regex", "(?=x)", "Removed", true), "axbx"), List{});
  EXPECT_EQ(cut(split("Regex", "", "Isolated", false), "\u00e9\u4e2d!"),
            (List{"\u00e9", "\u4e2d", "!"}));
}

TEST(PreTokenizer, StringPatternsAreLiteral) {
  EXPECT_EQ(cut(split("String", "a.", "Isolated", false), "a.ba."), (List{"a.", "b", "a."}));
  EXPECT_EQ(cut(split("String", "a.", "MergedWithPrevious", true), "a.ba."), (List{"a.b", "a."}));
  EXPECT_EQ(cut(split("String", "\\s", "Removed", false), "x\\sy z"), (List{"x", "y z"}));
  EXPECT_EQ(cut(split("String", "", "Removed", false), "abc"), List{"abc"});
}

List byte_level(const std::string& text, bool add_prefix_space, const Json& use_regex) {
  Json json = {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}};
  if (!use_regex.is_null()) json["use_regex"] = use_regex;
  const Words words = PreTokenizer::parse(json, "test").split(text);
  return {words.views.begin(), words.views.end()};
}

TEST(PreTokenizer, ByteLevel) {
  const std::string text = "a  b\n c";
  EXPECT_EQ(byte_level(text, false, false), List{text});
  EXPECT_EQ(byte_level(text, false, true), (List{"a", " ", " b", "\n", " c"}));
  EXPECT_EQ(byte_level(text, false, nullptr), (List{"a", " ", " b", "\n", " c"}));
  EXPECT_EQ(byte_level(text, true, true), (List{" a", " ", " b", "\n", " c"}));
  EXPECT_EQ(byte_level("I'll go 12", false, true), (List{"I", "'ll", " go", " 12"}));
  EXPECT_EQ(byte_level("  ", true, false), List{"  "});
  EXPECT_EQ(byte_level("", true, true), List{});
  // U+180E is no white space in current Unicode.
  EXPECT_EQ(byte_level("x\u180ey \u3000z", false, true),
            (List{"x", "\u180e", "y", " ", "\u3000", "z"}));
}

TEST(PreTokenizer, PrefixSpaceGoesBeforeEveryWordOfAnEarlierStep) {
  const Json json = {{"type", "Sequence"},
                     {"pretokenizers",
                      {split("Regex", R"(\d)", "Isolated", false),
                       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}}}};
  const Words words = PreTokenizer::parse(json, "test").split("a1 b");
  EXPECT_EQ(List(words.views.begin(), words.views.end()), (List{" a", " 1", " b"}));
}

TEST(PreTokenizer, LateRegexesCutTheWordsOfEarlierOnes) {
  const Json json = {
      {"type", "Sequence"},
      {"pretokenizers",
       {split("Regex", R"(\d{1,2})", "Isolated", false),
        split("Regex", "^b", "Removed", false),
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const Words words = PreTokenizer::parse(json, "test").split("b12345bc");
  EXPECT_EQ(List(words.views.begin(), words.views.end()), (List{"12", "34", "5", "c"}));
}

TEST(PreTokenizer, QwenPattern) {
  const char* pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(cut(split("Regex", pattern, "Isolated", false), "It'S 42  x!?\n\n  y "),
            (List{"It", "'S", " ", "4", "2", " ", " x", "!?\n\n", " ", " y", " "}));
}

}  // namespace
}  // namespace mere
