#include <array>
#include <gtest/gtest.h>
#include <thread>

#include "program.h"

#include "core/json.h"

namespace mere {
namespace {

constexpr const char* kId = "image-klein-nano";
constexpr const char* kUnset =
    "  alias = (unset)\n  pinned = (unset)\n  ttl-seconds = (unset)\n"
    "  max-context-tokens = (unset)\n  max-tokens = (unset)\n  temperature = (unset)\n"
    "  top-p = (unset)\n  min-p = (unset)\n  engine = (unset)\n  kv-cache-mode = (unset)\n";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ModelRuntime : public ::testing::Test {
 protected:
  ProgramResult run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"model", "runtime"});
    return program.run(words);
  }
  // The standard output of a command that succeeds.
  std::string out(const std::vector<std::string>& words) const {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return result.out;
  }
  ProgramResult set(std::vector<std::string> flags, const std::string& id = kId) const {
    flags.insert(flags.begin(), {"set", id});
    return run(flags);
  }
  Json settings(const std::string& id = kId) const {
    return parse_json(out({"get", id, "--json"}), "stdout").at("settings");
  }
  // The error that `set` with these flags ends with.
  Json refusal(std::vector<std::string> flags, const std::string& id = kId) const {
    flags.emplace_back("--json");
    const ProgramResult result = set(flags, id);
    EXPECT_EQ(result.status, 64) << result.err;
    return parse_json(result.out, "stdout").at("error");
  }
  fs::path file() const { return program.models() / ".mere-run/runtime-model-settings.json"; }

  Program program;
};

TEST_F(ModelRuntime, NothingIsSetAtFirstAndReadingWritesNothing) {
  EXPECT_EQ(out({"get", kId}), std::string(kId) + "\n" + kUnset);
  const Json nothing = settings();
  for (const Json& value : nothing) EXPECT_TRUE(value.is_null()) << nothing;
  EXPECT_FALSE(fs::exists(program.models()));
}

TEST_F(ModelRuntime, SetsEverythingAndClearsIt) {
  const std::vector<std::string> all = {"set",
                                        kId,
                                        "--alias",
                                        "small",
                                        "--pinned",
                                        "--ttl-seconds",
                                        "60",
                                        "--max-context-tokens",
                                        "4096",
                                        "--max-tokens",
                                        "512",
                                        "--temperature",
                                        "0.7",
                                        "--top-p=0.9",
                                        "--min-p",
                                        "0",
                                        "--engine",
                                        "flux2-klein",
                                        "--kv-cache-mode",
                                        "affine8"};
  EXPECT_EQ(out(all), std::string(kId) +
                          "\n  alias = small\n  pinned = true\n  ttl-seconds = 60\n"
                          "  max-context-tokens = 4096\n  max-tokens = 512\n  temperature = 0.7\n"
                          "  top-p = 0.9\n  min-p = 0\n  engine = flux2-klein\n"
                          "  kv-cache-mode = affine8\nSaved to " +
                          file().string() + "\n");
  EXPECT_EQ(settings("small"), (Json{{"alias", "small"},
                                     {"pinned", true},
                                     {"ttlSeconds", 60},
                                     {"maxContextTokens", 4096},
                                     {"maxTokens", 512},
                                     {"temperature", 0.7},
                                     {"topP", 0.9},
                                     {"minP", 0.0},
                                     {"engineOverride", "flux2-klein"},
                                     {"kvCacheMode", "affine8"}}));
  // One change leaves the rest, and the alias names the model here too.
  EXPECT_EQ(set({"--clear-ttl"}, "SMALL").status, 0);
  EXPECT_TRUE(settings().at("ttlSeconds").is_null());
  EXPECT_EQ(settings().at("maxTokens"), 512);
  EXPECT_EQ(set({"--clear-alias", "--unpinned", "--clear-max-context-tokens", "--clear-max-tokens",
                 "--clear-temperature", "--clear-top-p", "--clear-min-p", "--clear-engine",
                 "--kv-cache-mode", "default"})
                .status,
            0);
  const Json json = settings();
  EXPECT_EQ(json.at("pinned"), false);
  EXPECT_EQ(json.at("kvCacheMode"), "default");
  for (const auto& [key, value] : json.items()) {
    EXPECT_EQ(value.is_null(), key != "pinned" && key != "kvCacheMode") << key;
  }
}

TEST_F(ModelRuntime, AValueWithItsOppositeIsRefused) {
  const std::vector<std::vector<std::string>> pairs = {
      {"--alias", "x", "--clear-alias"},
      {"--pinned", "--unpinned"},
      {"--ttl-seconds", "1", "--clear-ttl"},
      {"--max-context-tokens", "1", "--clear-max-context-tokens"},
      {"--max-tokens", "1", "--clear-max-tokens"},
      {"--temperature", "1", "--clear-temperature"},
      {"--top-p", "1", "--clear-top-p"},
      {"--min-p", "1", "--clear-min-p"},
      {"--engine", "x", "--clear-engine"}};
  for (const std::vector<std::string>& pair : pairs) {
    const Json error = refusal(pair);
    EXPECT_EQ(error.at("code"), "usage");
    EXPECT_EQ(error.at("field"), pair.front());
    EXPECT_TRUE(contains(error.at("message"), pair.back())) << error;
  }
  EXPECT_EQ(refusal({}).at("message"), "nothing to set");
  EXPECT_FALSE(fs::exists(program.models()));
}

TEST_F(ModelRuntime, ValuesAreChecked) {
  const std::vector<std::array<const char*, 3>> cases = {
      {"--alias", "", "value_invalid"},
      {"--alias", "a/b", "value_invalid"},
      {"--ttl-seconds", "0", "value_out_of_range"},
      {"--ttl-seconds", "1.5", "value_invalid"},
      {"--ttl-seconds", "-1", "value_out_of_range"},
      {"--max-tokens", "2147483648", "value_out_of_range"},
      {"--max-context-tokens", "many", "value_invalid"},
      {"--temperature", "5.1", "value_out_of_range"},
      {"--temperature", "nan", "value_invalid"},
      {"--top-p", "0", "value_out_of_range"},
      {"--top-p", "1.1", "value_out_of_range"},
      {"--min-p", "-0.1", "value_out_of_range"},
      {"--engine", "x y", "value_invalid"},
      {"--kv-cache-mode", "affine4", "value_invalid"}};
  for (const auto& [flag, value, code] : cases) {
    const Json error = refusal({std::string(flag) + "=" + value});
    EXPECT_EQ(error.at("code"), code) << flag << " " << value;
    EXPECT_EQ(error.at("field"), flag) << value;
  }
  // A right value beside a wrong one is not stored either.
  refusal({"--max-tokens", "5", "--min-p", "7"});
  EXPECT_FALSE(fs::exists(program.models()));
}

TEST_F(ModelRuntime, KnowsModelsOfTheCatalogAndInstalledOnes) {
  EXPECT_EQ(refusal({"--pinned"}, "none").at("code"), "model_unknown");
  EXPECT_EQ(run({"get", "none"}).status, 64);
  // A folder that happens to have that name is no model.
  fs::create_directory(program.folder() / "none");
  EXPECT_EQ(run({"get", "none"}).status, 64);
  EXPECT_TRUE(contains(out({"get", "IMAGE-Klein-Nano"}), kId));
  EXPECT_EQ(run({"get", "image-emoji-nano"}).status, 0);
  fs::create_directories(program.models() / "Mine");
  EXPECT_EQ(set({"--pinned"}, "mine").status, 0);
  EXPECT_EQ(settings("Mine").at("pinned"), true);
  // The settings stay when the model goes, and can still be cleared.
  fs::remove(program.models() / "Mine");
  EXPECT_EQ(settings("Mine").at("pinned"), true);
}

TEST_F(ModelRuntime, AnAliasNamesOneModel) {
  EXPECT_EQ(set({"--alias", "quick"}).status, 0);
  EXPECT_EQ(refusal({"--alias", "QUICK"}, "image-klein-max").at("code"), "alias_taken");
  EXPECT_EQ(refusal({"--alias", "image-klein-max"}).at("code"), "alias_taken");
  EXPECT_EQ(refusal({"--alias", "image-emoji-nano"}).at("code"), "alias_taken");
  fs::create_directories(program.folder() / "elsewhere/Mine");
  EXPECT_EQ(program.run({"model", "location", "add", "elsewhere"}).status, 0);
  EXPECT_EQ(refusal({"--alias", "mine"}).at("code"), "alias_taken");
  EXPECT_EQ(settings().at("alias"), "quick");
  EXPECT_EQ(set({"--alias", "quick"}).status, 0);
}

TEST_F(ModelRuntime, BelongsToOneStore) {
  fs::create_directory(program.folder() / "store");
  EXPECT_EQ(set({"--pinned", "--models-root", "store"}).status, 0);
  EXPECT_TRUE(fs::exists(program.folder() / "store/.mere-run/runtime-model-settings.json"));
  EXPECT_TRUE(settings().at("pinned").is_null());
}

TEST_F(ModelRuntime, Json) {
  const ProgramResult result = set({"--max-tokens", "7", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  const Json json = parse_json(result.out, "stdout");
  EXPECT_EQ(json.at("status"), "saved");
  EXPECT_EQ(json.at("id"), kId);
  EXPECT_EQ(json.at("file"), file().string());
  EXPECT_EQ(json.at("settings").at("maxTokens"), 7);
  EXPECT_EQ(json.at("warnings"), Json::array());
}

TEST_F(ModelRuntime, ADamagedFileIsAnErrorAndKept) {
  write_file_atomic(file(), "{\"models\": 1}");
  EXPECT_EQ(run({"get", kId}).status, 1);
  EXPECT_EQ(set({"--pinned"}).status, 1);
  EXPECT_EQ(read_file(file(), 100), "{\"models\": 1}");
}

TEST_F(ModelRuntime, ProcessesAtOnceLoseNothing) {
  const std::vector<std::vector<std::string>> changes = {
      {"--pinned"},       {"--ttl-seconds", "1"}, {"--max-tokens", "2"},
      {"--min-p", "0.5"}, {"--top-p", "0.5"},     {"--engine", "e"}};
  std::vector<std::thread> threads;
  for (const auto& change : changes) {
    threads.emplace_back([this, &change] { EXPECT_EQ(set(change).status, 0); });
  }
  for (std::thread& thread : threads) thread.join();
  int count = 0;
  const Json json = settings();
  for (const Json& value : json) count += value.is_null() ? 0 : 1;
  EXPECT_EQ(count, static_cast<int>(changes.size()));
}

}  // namespace
}  // namespace mere
