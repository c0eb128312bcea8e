#include <gtest/gtest.h>

#include "program.h"

#include "core/json.h"

namespace mere {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ConfigCommand : public ::testing::Test {
 protected:
  ProgramResult run(std::vector<std::string> words,
                    const std::vector<std::string>& variables = {}) {
    words.insert(words.begin(), "config");
    return program.run(words, {}, {.variables = variables});
  }
  // The standard output of a command that succeeds.
  std::string out(const std::vector<std::string>& words) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
  fs::path file() const { return program.models().parent_path() / "config.json"; }

  Program program;
};

TEST_F(ConfigCommand, SetsGetsListsAndUnsets) {
  EXPECT_EQ(out({"path"}), file().string() + "\n");
  EXPECT_EQ(out({"list"}),
            "config: " + file().string() + "\n  hf-token = (unset)\n  hf-endpoint = (unset)\n");
  EXPECT_EQ(out({"set", "hf-token", "hf_0123456789"}),
            "Set hf-token = hf_0\u20266789\nSaved to " + file().string() + "\n");
  EXPECT_EQ(out({"set", "hf-endpoint", "https://a.b/"}),
            "Set hf-endpoint = https://a.b\nSaved to " + file().string() + "\n");
  EXPECT_EQ(out({"get", "hf-token"}), "hf_0\u20266789\n");
  EXPECT_EQ(out({"get", "hf-token", "--reveal"}), "hf_0123456789\n");
  EXPECT_EQ(out({"get", "hf-endpoint"}), "https://a.b\n");
  EXPECT_EQ(out({"list"}), "config: " + file().string() +
                               "\n  hf-token = hf_0\u20266789\n  hf-endpoint = https://a.b\n");
  EXPECT_EQ(out({"unset", "hf-token"}), "Unset hf-token\n");
  EXPECT_EQ(out({"unset", "hf-token"}), "Unset hf-token\n");
  EXPECT_EQ(out({"set", "hf-endpoint", " "}),
            "Unset hf-endpoint\nSaved to " + file().string() + "\n");
  EXPECT_EQ(read_file(file(), 100), "{}\n");
}

// A script must not take a sentence for a token.
TEST_F(ConfigCommand, AKeyThatIsNotSetIsToldOnStandardErrorAndSucceeds) {
  const ProgramResult result = run({"get", "hf-token"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "hf-token is not set.\n");
}

TEST_F(ConfigCommand, TakesAValueFromTheEnvironment) {
  const std::vector<std::string> words = {"set", "hf-token", "--from-env", "MY_TOKEN"};
  const ProgramResult result = run(words, {"MY_TOKEN=hf_from_environment"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(contains(result.out + result.err, "from_environment"));
  EXPECT_EQ(out({"get", "hf-token", "--reveal"}), "hf_from_environment\n");
  for (const std::vector<std::string>& variables :
       std::vector<std::vector<std::string>>{{}, {"MY_TOKEN="}, {"MY_TOKEN= \n"}}) {
    const ProgramResult refused = run(words, variables);
    EXPECT_EQ(refused.status, 64);
    EXPECT_TRUE(contains(refused.err, "MY_TOKEN is not set")) << refused.err;
  }
  EXPECT_EQ(out({"get", "hf-token", "--reveal"}), "hf_from_environment\n");
}

TEST_F(ConfigCommand, UsageErrors) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"get", "hf_token"},
                                             {"set", "hf-tokens", "s3cret"},
                                             {"unset", "x"},
                                             {"set", "s3cret", "hf-token"},
                                             {"set", "hf-token"},
                                             {"set", "hf-token", "s3cret", "--from-env", "X"},
                                             {"set", "hf-token", "s3cret", "more"},
                                             {"set", "hf-token", "s3cret more"},
                                             {"set", "hf-endpoint", "https://user:s3cret@a.b"},
                                             {"set", "hf-endpoint", "http://a.b/?s3cret"},
                                             {"get"},
                                             {}}) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, 64);
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(contains(result.err, "s3cret")) << result.err;
  }
  EXPECT_TRUE(contains(run({"get", "x"}).err, "keys: hf-token, hf-endpoint"));
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(ConfigCommand, SaysWhenAVariableWins) {
  out({"set", "hf-token", "hf_stored_token"});
  const ProgramResult result = run({"get", "hf-token"}, {"HF_TOKEN=hf_other_token"});
  EXPECT_EQ(result.out, "hf_s\u2026oken\n");
  EXPECT_EQ(result.err, "HF_TOKEN is set and is used instead of the stored hf-token\n");
}

TEST_F(ConfigCommand, Json) {
  out({"set", "hf-token", "hf_0123456789"});
  Json json = parse_json(out({"get", "hf-token", "--json"}), "stdout");
  EXPECT_EQ(json.at("key"), "hf-token");
  EXPECT_EQ(json.at("value"), "hf_0\u20266789");
  EXPECT_EQ(json.at("secret"), true);
  json = parse_json(out({"get", "hf-token", "--json", "--reveal"}), "stdout");
  EXPECT_EQ(json.at("value"), "hf_0123456789");
  json = parse_json(out({"get", "hf-endpoint", "--json"}), "stdout");
  EXPECT_TRUE(json.at("value").is_null());
  json = parse_json(out({"list", "--json"}), "stdout");
  EXPECT_EQ(json.at("path"), file().string());
  EXPECT_EQ(json.at("values").at("hf-token"), "hf_0\u20266789");
  EXPECT_TRUE(json.at("values").at("hf-endpoint").is_null());
  json = parse_json(run({"get", "x", "--json"}).out, "stdout");
  EXPECT_EQ(json.at("error").at("code"), "config_key_unknown");
}

TEST_F(ConfigCommand, ABrokenFileIsToldAndKept) {
  write_file_atomic(file(), "{\"hf_token\": \"s3cret");
  const ProgramResult result = run({"list"});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.err, "mere.run: warning: ")) << result.err;
  EXPECT_TRUE(contains(result.err, "config.json.broken-")) << result.err;
  EXPECT_FALSE(contains(result.err, "s3cret"));
  EXPECT_EQ(run({"list"}).err, "");
}

}  // namespace
}  // namespace mere
