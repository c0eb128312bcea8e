#include "tokenizer/regex.h"

#include <chrono>
#include <gtest/gtest.h>

#include "core/error.h"

namespace mere {
namespace {

std::vector<std::string> found(const char* pattern, const std::string& text) {
  std::vector<std::string> out;
  for (const Regex::Span& span : Regex(pattern, Regex::Syntax::kPattern, "test").matches(text)) {
    out.push_back(text.substr(span.begin, span.end - span.begin));
  }
  return out;
}

using List = std::vector<std::string>;

TEST(Regex, FindsSuccessiveMatches) {
  EXPECT_EQ(found(R"(\p{L}+)", "abc \u4e2d\u6587!"), (List{"abc", "\u4e2d\u6587"}));
  EXPECT_EQ(found("a*", "baac"), (List{"", "aa", ""}));
  EXPECT_EQ(found("x", ""), List{});
  EXPECT_EQ(found("", ""), List{""});
}

// The dialect of tokenizer files is Oniguruma's.
TEST(Regex, WhiteSpaceIsThatOfUnicode) {
  const std::string spaces =
      "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000";
  const std::string others = "\u180e\u200b\u200c\u200d\ufeff\x1c\x1f";
  EXPECT_EQ(found(R"(\s+)", spaces + others), List{spaces});
  EXPECT_EQ(found(R"(\S+)", spaces + others), List{others});
  EXPECT_EQ(found(R"([\s]+)", spaces + others), List{spaces});
  EXPECT_EQ(found(R"([\S]+)", spaces + others), List{others});
  EXPECT_EQ(found(R"([^\s]+)", spaces + others), List{others});
  EXPECT_EQ(found(R"([^\S]+)", spaces + others), List{spaces});
  EXPECT_EQ(found(R"([\s-]+)", "a - b"), List{" - "});
}

TEST(Regex, WordCharactersIncludeMarksAndConnectors) {
  EXPECT_EQ(found(R"(\w+)", "e\u0301_\u203f9\u0663 -"), List{"e\u0301_\u203f9\u0663"});
  EXPECT_EQ(found(R"(\W+)", "a -b"), List{" -"});
}

TEST(Regex, AnchorsWorkAtEveryLine) {
  EXPECT_EQ(found("^a", "a\na"), (List{"a", "a"}));
  EXPECT_EQ(found("a$", "a\na"), (List{"a", "a"}));
  EXPECT_EQ(found(".+", "a\rb\nc"), (List{"a\rb", "c"}));
}

TEST(Regex, UnicodeEscapesAndClasses) {
  EXPECT_EQ(found(R"([\u4e00-\u9fff]+)", "a\u4e2d\u6587b"), List{"\u4e2d\u6587"});
  EXPECT_EQ(found("[]a]+", "x]a["), List{"]a"});
  EXPECT_EQ(found("[[:alpha:]]+", "1ab2"), List{"ab"});
  EXPECT_EQ(found(R"([^\]]+)", "ab]c"), (List{"ab", "c"}));
  EXPECT_EQ(found("(?i:'s)", "'S '\u017f"), (List{"'S", "'\u017f"}));
}

std::string error_of(const std::string& pattern) {
  try {
    Regex(pattern, Regex::Syntax::kPattern, "file.json");
  } catch (const IoError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Regex, RefusesWhatMeansSomethingElse) {
  for (const char* pattern : {R"(\h)", R"(\bword)", R"([a[b]])", "[a&&b]", R"([\W])", "(?m)a",
                              "(?i-m:a)", R"(\R)", R"(a\Kb)", R"(\X)", "[[:alpha", R"(\C)"}) {
    EXPECT_EQ(error_of(pattern).rfind("file.json: pre-tokenizer pattern: ", 0), 0U) << pattern;
  }
}

TEST(Regex, RefusesWhatDoesNotCompile) {
  const std::string deep = std::string(5000, '(') + std::string(5000, ')');
  for (const std::string& pattern :
       {std::string("(a"), std::string("a{2,1}"), std::string("\\"), std::string("["),
        std::string(R"(\p{Klingon})"), std::string("a\xff"), deep, std::string(20'000, 'a'),
        std::string("((a{1000}){1000}){1000}"), std::string(R"(\u00zz)")}) {
    EXPECT_NE(error_of(pattern), "no error") << pattern.substr(0, 40);
  }
}

TEST(Regex, ExponentialPatternsEndInAnError) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text(2000, 'a');
  for (const char* pattern : {"(a+)+$b", "(a|a)*b", "(a*)*b", "(?:(?R)|a)*b", "(.*)*x"}) {
    const Regex regex(pattern, Regex::Syntax::kPattern, "file.json");
    try {
      EXPECT_TRUE(regex.matches(text).empty()) << pattern;
    } catch (const IoError& e) {
      EXPECT_NE(std::string(e.what()).find("file.json"), std::string::npos);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Regex, LongTextsPass) {
  const std::string text = std::string(1 << 20, 'a') + std::string(1 << 18, ' ') + "\u00e9";
  EXPECT_EQ(found(R"(\p{L}+|\s+(?!\S)|\s+)", text).size(), 4U);
  EXPECT_EQ(found("(?:a|b)+", text).size(), 1U);
}

}  // namespace
}  // namespace mere
