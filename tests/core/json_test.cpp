#include "core/json.h"

#include <gtest/gtest.h>
#include <limits>

#include "core/error.h"

namespace mere {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse_json(text, "file.json");
  } catch (const IoError& e) {
    const std::string what = e.what();
    EXPECT_EQ(what.rfind("file.json: ", 0), 0U) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos);
    return what;
  }
  return "no error";
}

TEST(Json, GivesTheTreeOfThePlainParser) {
  for (const char* text :
       {"null", "true", "-1", "18446744073709551615", "1.5e3", R"("a\u00e9\ud83d\ude00\n")", "[]",
        "{}", R"([1, [2, {"a": []}], "x", null, false])",
        R"({"a": {"b": {"a": 1}}, "c": [{"a": 1}, {"a": 2}], "": -0.5})"}) {
    EXPECT_EQ(parse_json(text, "file.json"), Json::parse(text)) << text;
  }
}

TEST(Json, RefusesASecondKeyOfOneName) {
  EXPECT_NE(error_of(R"({"a": 1, "b": 2, "a": 3})").find("\"a\" appears twice"), std::string::npos);
  EXPECT_NE(error_of(R"({"a": 1, "\u0061": 3})").find("appears twice"), std::string::npos);
  EXPECT_NE(error_of(R"([{"x": {"a": [], "a": []}}])").find("appears twice"), std::string::npos);
  EXPECT_NE(error_of(R"({"a": {}, "a": {}})").find("appears twice"), std::string::npos);
  EXPECT_EQ(error_of(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]})"), "no error");
}

TEST(Json, RefusesMoreThan64Levels) {
  const auto lists = [](int depth) {
    const auto count = static_cast<size_t>(depth);
    return std::string(count, '[') + std::string(count, ']');
  };
  EXPECT_EQ(error_of(lists(kMaxJsonDepth)), "no error");
  EXPECT_NE(error_of(lists(kMaxJsonDepth + 1)).find("nested more than 64"), std::string::npos);
  EXPECT_NE(error_of(std::string(10'000'000, '[')).find("nested"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  EXPECT_NE(error_of(objects).find("nested"), std::string::npos);
}

TEST(Json, RefusesWhatIsNotJson) {
  using namespace std::string_literals;
  for (const std::string& text : {""s,
                                  " "s,
                                  "{"s,
                                  "[1,]"s,
                                  "{\"a\":1,}"s,
                                  "{\"a\"}"s,
                                  "nul"s,
                                  "1 2"s,
                                  "[1] x"s,
                                  "'a'"s,
                                  "\"a"s,
                                  "\"\n\""s,
                                  "\"\xff\""s,
                                  "\"\xed\xa0\x80\""s,
                                  "\"\\ud800\""s,
                                  "01"s,
                                  "1e999"s,
                                  "NaN"s,
                                  "// c\n1"s,
                                  "version https://git-lfs"s,
                                  "1\0"s}) {
    EXPECT_NE(error_of(text), "no error") << text;
  }
}

TEST(Json, FileErrorsNameTheFile) {
  try {
    parse_json_file("/nonexistent/config.json");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_NE(std::string(e.what()).find("/nonexistent/config.json"), std::string::npos);
  }
}

TEST(Json, IntegersHaveRanges) {
  const Json json = parse_json(
      R"({"n": 5, "big": 18446744073709551615, "least": -9223372036854775808, "f": 5.0, "s": "5",
          "nothing": null})",
      "j");
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(json_int(json, "n", 5, 5, "j"), 5);
  EXPECT_THROW(json_int(json, "n", 6, 10, "j"), IoError);
  EXPECT_THROW(json_int(json, "n", 0, 4, "j"), IoError);
  EXPECT_THROW(json_int(json, "big", kMin, kMax, "j"), IoError);
  EXPECT_EQ(json_int(json, "least", kMin, kMax, "j"), kMin);
  EXPECT_THROW(json_int(json, "f", 0, 10, "j"), IoError);
  EXPECT_THROW(json_int(json, "s", 0, 10, "j"), IoError);
  EXPECT_THROW(json_int(json, "nothing", 0, 10, "j"), IoError);
  EXPECT_THROW(json_int(json, "absent", 0, 10, "j"), IoError);
  EXPECT_THROW(json_int(Json::array(), "n", 0, 10, "j"), IoError);
  EXPECT_EQ(json_int_or(json, "nothing", 0, 10, 7, "j"), 7);
  EXPECT_EQ(json_int_or(json, "absent", 0, 10, 7, "j"), 7);
  EXPECT_EQ(json_int_or(json, "n", 0, 10, 7, "j"), 5);
  EXPECT_THROW(json_int_or(json, "n", 0, 4, 4, "j"), IoError);
}

TEST(Json, NumbersBooleansAndStrings) {
  const Json json = parse_json(R"({"x": 0.5, "i": 2, "t": true, "s": "text", "z": null})", "j");
  EXPECT_EQ(json_number_or(json, "x", 0, 1, 9, "j"), 0.5);
  EXPECT_EQ(json_number_or(json, "i", 0, 2, 9, "j"), 2.0);
  EXPECT_EQ(json_number_or(json, "z", 0, 1, 9, "j"), 9.0);
  EXPECT_THROW(json_number_or(json, "i", 0, 1, 9, "j"), IoError);
  EXPECT_THROW(json_number_or(json, "s", 0, 1, 9, "j"), IoError);
  EXPECT_TRUE(json_bool_or(json, "t", false, "j"));
  EXPECT_TRUE(json_bool_or(json, "absent", true, "j"));
  EXPECT_THROW(json_bool_or(json, "i", false, "j"), IoError);
  EXPECT_EQ(json_string_or(json, "s", "", "j"), "text");
  EXPECT_EQ(json_string_or(json, "z", "none", "j"), "none");
  EXPECT_THROW(json_string_or(json, "t", "", "j"), IoError);
}

TEST(Json, ListsOfIntegers) {
  const Json json = parse_json(R"({"a": [1, 2], "e": [], "f": [1, 2.5], "n": 3, "z": null})", "j");
  EXPECT_EQ(json_ints(json, "a", 1, 2, "j"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(json_ints(json, "e", 1, 2, "j"), std::vector<int64_t>{});
  EXPECT_EQ(json_ints(json, "z", 1, 2, "j"), std::nullopt);
  EXPECT_EQ(json_ints(json, "absent", 1, 2, "j"), std::nullopt);
  EXPECT_THROW(json_ints(json, "a", 1, 1, "j"), IoError);
  EXPECT_THROW(json_ints(json, "f", 1, 2, "j"), IoError);
  EXPECT_THROW(json_ints(json, "n", 1, 3, "j"), IoError);
  Json many;
  many["a"] = std::vector<int>(1025, 1);
  EXPECT_THROW(json_ints(many, "a", 1, 1, "j"), IoError);
}

TEST(Json, MemberErrorsNameFileAndMember) {
  try {
    json_int(parse_json(R"({"heads": 0})", "j"), "heads", 1, 8, "model/config.json");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_STREQ(e.what(), "model/config.json: \"heads\" is outside 1 to 8");
  }
}

TEST(Json, FloatsKeepTheirShortestText) {
  EXPECT_EQ(Json(json_float(1.2F)).dump(), "1.2");
  EXPECT_EQ(Json(json_float(-0.75F)).dump(), "-0.75");
  EXPECT_EQ(static_cast<float>(json_float(3.4e38F)), 3.4e38F);
}

}  // namespace
}  // namespace mere
