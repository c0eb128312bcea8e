#include <gtest/gtest.h>

#include "core/error.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/utf8.h"

namespace mere {
namespace {

std::string normal(const char* json, const std::string& text) {
  std::string storage;
  return std::string(Normalizer::parse(Json::parse(json), "test").apply(text, storage));
}

constexpr const char* kNfc = R"({"type": "NFC"})";
constexpr const char* kNfkc = R"({"type": "NFKC"})";

TEST(Normalizer, Nfc) {
  EXPECT_EQ(normal(kNfc, "plain"), "plain");
  EXPECT_EQ(normal(kNfc, "e\u0301"), "\u00e9");
  EXPECT_EQ(normal(kNfc, "\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(normal(kNfc, "\u212b\u2126"), "\u00c5\u03a9");   // singletons
  EXPECT_EQ(normal(kNfc, "\u0958"), "\u0915\u093c");         // composition exclusion
  EXPECT_EQ(normal(kNfc, "a\u0301\u0323"), "\u1ea1\u0301");  // marks are put in order
  EXPECT_EQ(normal(kNfc, "\uff21\ufb01"), "\uff21\ufb01");   // compatibility forms stay
  EXPECT_EQ(normal(kNfc, std::string("\u00e9\0x", 4)), std::string("\u00e9\0x", 4));
}

TEST(Normalizer, NfkcAndSequences) {
  EXPECT_EQ(normal(kNfkc, "\uff21\ufb01"), "Afi");
  EXPECT_EQ(normal(kNfkc, "\ufdfa").size(), 33U);
  EXPECT_EQ(normal(R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"NFKC"}]})",
                   "e\u0301\uff21"),
            "\u00e9A");
  EXPECT_EQ(normal("null", "e\u0301"), "e\u0301");
  EXPECT_EQ(normal(R"({"type":"Sequence","normalizers":[]})", "e\u0301"), "e\u0301");
}

TEST(Normalizer, RefusesOthers) {
  for (const char* json :
       {R"({"type":"NFD"})", R"({"type":"Sequence"})", R"({"type":"Sequence","normalizers":1})",
        R"({"type":"Sequence","normalizers":[{"type":"Strip"}]})", "[]", R"("NFC")", "{}"}) {
    EXPECT_THROW(Normalizer::parse(Json::parse(json), "test"), IoError) << json;
  }
  Json many = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 1000; ++i) many["normalizers"].push_back({{"type", "NFC"}});
  EXPECT_THROW(Normalizer::parse(many, "test"), IoError);
}

TEST(Utf8, DecodesEveryCodePoint) {
  for (char32_t point = 0; point <= 0x10FFFF; point += point < 0x3000 ? 1 : 97) {
    if (point >= 0xD800 && point <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, point);
    const CodePoint decoded = code_point_at(text, 0);
    ASSERT_TRUE(decoded.valid) << text;
    ASSERT_TRUE(decoded.value == point);
    ASSERT_EQ(decoded.bytes, text.size());
    ASSERT_TRUE(code_point_before(text, text.size()).value == point);
  }
}

TEST(Utf8, ReplacesTheLongestBrokenPrefix) {
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a\ufffdz");
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\x98"), "\ufffd");
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\x98z"), "\ufffdz");
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");
  EXPECT_EQ(replace_invalid_utf8("\xe0\x80\x80"), "\ufffd\ufffd\ufffd");
  EXPECT_FALSE(is_valid_utf8("\xc1\x81"));
  EXPECT_FALSE(is_valid_utf8("\xf5\x80\x80\x80"));
  EXPECT_TRUE(is_valid_utf8("\u00e9\U0001f600"));
}

TEST(Utf8, Classes) {
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0x200B));
  EXPECT_TRUE(is_word_character('_'));
  EXPECT_TRUE(is_word_character(0x301));
  EXPECT_FALSE(is_word_character('-'));
}

}  // namespace
}  // namespace mere
