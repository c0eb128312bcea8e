#include "catalog/runtime_settings.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temporary_folder.h"

#include "core/error.h"

namespace mere {
namespace {

constexpr const char* kFile = ".mere-run/runtime-model-settings.json";

class RuntimeSettingsFile : public ::testing::Test {
 protected:
  RuntimeSettings set_alias(const std::string& id, const std::string& alias) {
    return change_runtime_settings(store.path(), id,
                                   [&](RuntimeSettings& settings) { settings.alias = alias; });
  }
  // The code of the error of that; empty when there is none.
  std::string alias_problem(const std::string& id, const std::string& alias) {
    try {
      set_alias(id, alias);
    } catch (const UsageError& e) {
      EXPECT_EQ(e.info().field, "--alias");
      return e.info().code;
    }
    return "";
  }

  TemporaryFolder store;
};

TEST_F(RuntimeSettingsFile, AMissingOneIsEmpty) {
  EXPECT_TRUE(read_runtime_settings(store.path()).empty());
  EXPECT_FALSE(fs::exists(store.path() / ".mere-run"));
}

TEST_F(RuntimeSettingsFile, HoldsEverything) {
  const RuntimeSettings all = {.alias = "a",
                               .pinned = false,
                               .ttl_seconds = 1,
                               .max_context_tokens = 2,
                               .max_tokens = 3,
                               .temperature = 0.7,
                               .top_p = 0.9,
                               .min_p = 0.0,
                               .engine = "e",
                               .kv_cache_mode = "auto"};
  const RuntimeSettings changed = change_runtime_settings(
      store.path(), "m", [&](RuntimeSettings& settings) { settings = all; });
  EXPECT_EQ(changed, all);
  EXPECT_EQ(read_runtime_settings(store.path()).at("m"), all);
}

TEST_F(RuntimeSettingsFile, AModelWithoutSettingsLeavesIt) {
  set_alias("m", "a");
  set_alias("n", "b");
  change_runtime_settings(store.path(), "m",
                          [](RuntimeSettings& settings) { settings.alias.reset(); });
  const AllRuntimeSettings all = read_runtime_settings(store.path());
  EXPECT_FALSE(all.contains("m"));
  EXPECT_TRUE(all.contains("n"));
}

TEST_F(RuntimeSettingsFile, WhatThrowsChangesNothing) {
  set_alias("m", "a");
  EXPECT_THROW(change_runtime_settings(store.path(), "m",
                                       [](RuntimeSettings& settings) {
                                         settings.alias = "b";
                                         throw UsageError{{"x", "", "x", ""}};
                                       }),
               UsageError);
  EXPECT_EQ(read_runtime_settings(store.path()).at("m").alias, "a");
}

TEST_F(RuntimeSettingsFile, ADamagedOneIsAnErrorThatNamesItAndIsKept) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"models": []})", R"({"schemaVersion": 2, "models": {}})",
        R"({"models": {"../x": {}}})", R"({"models": {"m": 1}})",
        R"({"models": {"m": {"alias": 1}}})", R"({"models": {"m": {"alias": "a/b"}}})",
        R"({"models": {"m": {"pinned": "yes"}}})", R"({"models": {"m": {"ttlSeconds": -1}}})",
        R"({"models": {"m": {"maxTokens": 1.5}}})", R"({"models": {"m": {"temperature": 6}}})",
        R"({"models": {"m": {"topP": 1.1}}})", R"({"models": {"m": {"minP": "0"}}})"}) {
    store.write(kFile, text);
    try {
      read_runtime_settings(store.path());
      ADD_FAILURE() << text;
    } catch (const IoError& e) {
      EXPECT_NE(std::string(e.what()).find("runtime-model-settings.json"), std::string::npos)
          << e.what();
    }
    EXPECT_THROW(set_alias("m", "a"), IoError) << text;
    EXPECT_EQ(read_file(store.path() / kFile, 1000), text);
  }
}

TEST_F(RuntimeSettingsFile, AnAliasNamesOneModel) {
  fs::create_directory(store.path() / "Installed");
  EXPECT_EQ(alias_problem("m", "quick"), "");
  EXPECT_EQ(alias_problem("m", "Quick"), "");  // its own
  EXPECT_EQ(alias_problem("n", "QUICK"), "alias_taken");
  EXPECT_EQ(alias_problem("n", "M"), "alias_taken");  // a model that has settings
  EXPECT_EQ(alias_problem("n", "image-klein-nano"), "alias_taken");
  EXPECT_EQ(alias_problem("n", "image-emoji-nano"), "alias_taken");
  EXPECT_EQ(alias_problem("n", "Installed"), "alias_taken");
  EXPECT_EQ(alias_problem("n", "installed"), "alias_taken");
  EXPECT_EQ(alias_problem("Installed", "installed"), "");
  EXPECT_FALSE(read_runtime_settings(store.path()).contains("n"));
}

TEST_F(RuntimeSettingsFile, AnAliasIsFoundWithoutRegardToCase) {
  set_alias("m", "Quick");
  const AllRuntimeSettings all = read_runtime_settings(store.path());
  EXPECT_EQ(id_of_alias("qUICK", all), "m");
  EXPECT_EQ(id_of_alias("other", all), "other");
}

TEST_F(RuntimeSettingsFile, TwoWritersLoseNothing) {
  constexpr int kChanges = 40;
  const auto count_up = [&](const std::string& own) {
    for (int i = 0; i < kChanges; ++i) {
      change_runtime_settings(store.path(), "shared", [](RuntimeSettings& settings) {
        settings.max_tokens = settings.max_tokens.value_or(0) + 1;
      });
      change_runtime_settings(store.path(), own + std::to_string(i),
                              [](RuntimeSettings& settings) { settings.pinned = true; });
    }
  };
  const pid_t child = ::fork();
  if (child == 0) {
    count_up("child");
    ::_exit(0);
  }
  count_up("parent");
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const AllRuntimeSettings all = read_runtime_settings(store.path());
  EXPECT_EQ(all.at("shared").max_tokens, 2 * kChanges);
  EXPECT_EQ(all.size(), size_t{2 * kChanges + 1});
}

}  // namespace
}  // namespace mere
