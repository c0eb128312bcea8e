#include "media/text.h"

#include <gtest/gtest.h>

namespace mere::media {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

TEST(Text, OnlyWellFormedUtf8IsAccepted) {
  for (const char* good : {"", "a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x8D\x8E", "\xED\x9F\xBF",
                           "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
    EXPECT_EQ(clean_utf8(good), good);
  }
  for (const char* bad :
       {"\x80", "\xC3", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF8\x88\x80\x80", "\xFF", "\xE2\x82",
        "\xE2"
        "a\xAC"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
    EXPECT_TRUE(is_utf8(clean_utf8(bad)));
  }
  EXPECT_EQ(clean_utf8("a\xFFz\xC3"), "a" + kBad + "z" + kBad);
  EXPECT_EQ(clean_utf8(std::string_view("a\0b", 3)), "a" + kBad + "b");
}

TEST(Text, Latin1BothWays) {
  EXPECT_EQ(latin1_to_utf8("caf\xE9"), "caf\xC3\xA9");
  EXPECT_EQ(utf8_to_latin1("caf\xC3\xA9\n\t"), "caf\xE9\n\t");
  for (const char* other : {"\xE2\x82\xAC", "\xC2\x85", "a\rb", "\x1B", "\x7F", "\xFF"}) {
    EXPECT_EQ(utf8_to_latin1(other), std::nullopt) << other;
  }
}

TEST(Text, Utf16BothWays) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8D\x8E";
  EXPECT_EQ(utf16_to_utf8(utf8_to_utf16le(text), ByteOrder::kLittle), text);
  EXPECT_EQ(utf16_to_utf8(std::string_view("\x00"
                                           "a\xD8\x3C\xDF\x4E\xDF\x4E",
                                           8),
                          ByteOrder::kBig),
            "a\xF0\x9F\x8D\x8E" + kBad);
}

TEST(Text, LinesComeBackAsEntries) {
  const ImageText entries = {{"a", "1\n 2\n\n3: 4\n"}, {"b c", ""}, {"a", "x: y"}};
  EXPECT_EQ(split_lines(join_lines(entries)), entries);
  EXPECT_EQ(split_lines("just words"), std::nullopt);
  EXPECT_EQ(split_lines(""), std::nullopt);
  EXPECT_EQ(split_lines(" a: b"), std::nullopt);
  EXPECT_EQ(split_lines("a: b\nwords"), std::nullopt);
  EXPECT_EQ(split_entry("words: and: more"),
            (std::pair<std::string, std::string>{"words", "and: more"}));
  EXPECT_EQ(split_entry("https://x"),
            (std::pair<std::string, std::string>{"Comment", "https://x"}));
}

}  // namespace
}  // namespace mere::media
