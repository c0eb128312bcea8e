#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "temporary_folder.h"

#include "catalog/model_root.h"
#include "core/error.h"
#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

class ModelDigest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", (folder.path() / "cache").c_str(), 1);
    folder.write("model/model_index.json", R"({"_class_name": "Flux2KleinPipeline"})");
    folder.write("model/vae/b.safetensors", "bb");
    folder.write("model/transformer/a.safetensors", "aa");
    folder.write("model/transformer/config.json", "{}");
    folder.write("model/cases/case.safetensors", "not a weight of the model");
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  std::string digest() { return model_digest(open_model_root(folder.path() / "model")); }
  fs::path cache() const { return user_cache_dir() / "model-digests.json"; }

  TemporaryFolder folder;
};

TEST_F(ModelDigest, IsTheHashOfAListThatSha256sumPrints) {
  EXPECT_EQ(digest(), sha256_hex(sha256_hex("aa") + "  transformer/a.safetensors\n" +
                                 sha256_hex("bb") + "  vae/b.safetensors\n"));
}

TEST_F(ModelDigest, HashesFlatModels) {
  folder.write("flat/model_index.json", R"({"_class_name": "Flux2KleinPipeline"})");
  folder.write("flat/model.safetensors", "cc");
  EXPECT_EQ(model_digest(open_model_root(folder.path() / "flat")),
            sha256_hex(sha256_hex("cc") + "  model.safetensors\n"));
}

TEST_F(ModelDigest, SeesAChange) {
  const std::string before = digest();
  folder.write("model/vae/b.safetensors", "xx");
  EXPECT_NE(digest(), before);
}

TEST_F(ModelDigest, RemembersOnlyFilesThatHaveSettled) {
  digest();
  EXPECT_FALSE(fs::exists(cache()));
}

// The change time of a file cannot be set, so this waits until it is old enough to be remembered.
TEST_F(ModelDigest, UsesAndChecksTheCache) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  const std::string right = digest();
  ASSERT_TRUE(fs::exists(cache()));

  // A cached hash is believed while the file is unchanged: proof that it is used at all.
  Json json = parse_json_file(cache());
  ASSERT_EQ(json.at("files").size(), 2U);
  for (auto& [name, entry] : json["files"].items()) entry["sha256"] = std::string(64, '0');
  folder.write("cache/MereRun/model-digests.json", json.dump());
  EXPECT_NE(digest(), right);

  // And not when the file changed, even with its old size and modification time.
  const fs::path weights = folder.path() / "model/vae/b.safetensors";
  const auto time = fs::last_write_time(weights);
  folder.write("model/vae/b.safetensors", "yy");
  fs::last_write_time(weights, time);
  const std::string line = std::string(64, '0') + "  transformer/a.safetensors\n" +
                           sha256_hex("yy") + "  vae/b.safetensors\n";
  EXPECT_EQ(digest(), sha256_hex(line));
}

TEST_F(ModelDigest, ToleratesABrokenCache) {
  const std::string right = digest();
  for (const char* text :
       {"", "{", "[]", "{\"version\": 9, \"files\": {}}", "{\"version\": 1, \"files\": 3}",
        "{\"version\": 1, \"files\": {\"/x\": 3}}", "{\"version\": 1}",
        "{\"version\": 1, \"files\": {\"/x\": {\"size\": 1e99}}}"}) {
    folder.write("cache/MereRun/model-digests.json", text);
    EXPECT_EQ(digest(), right) << text;
  }
}

TEST_F(ModelDigest, NeedsNoCacheFolder) {
  const std::string right = digest();
  ::setenv("XDG_CACHE_HOME", "/proc/no/such", 1);
  EXPECT_EQ(digest(), right);
}

TEST_F(ModelDigest, StopsWhenCancelled) {
  SilentProgress progress;
  progress.cancel();
  EXPECT_THROW(model_digest(open_model_root(folder.path() / "model"), &progress), Cancelled);
}

}  // namespace
}  // namespace mere
