// model list, info, capabilities, verify, remove, storage, gc, repair-manifests on models that were
// pulled from a fake hub.
#include <fstream>
#include <gtest/gtest.h>

#include "fake_hub.h"
#include "program.h"

#include "core/json.h"

namespace mere::test {
namespace {

constexpr const char* kRepository = "tests/klein";

class ModelStore : public ::testing::Test {
 protected:
  ModelStore() {
    const fs::path model = fs::path(MERE_FIXTURES) / "klein/model";
    for (const auto& each : fs::recursive_directory_iterator(model)) {
      if (!each.is_regular_file()) continue;
      hub_.add(kRepository, fs::relative(each.path(), model).string(),
               read_file(each.path(), size_t{1} << 26), each.path().extension() == ".safetensors");
    }
    Json models = Json::array();
    for (const char* id : {"image-one", "image-two"}) {
      models.push_back(
          {{"id", id},
           {"category", "image"},
           {"family", "klein"},
           {"summary", "of the tests"},
           {"sources", {{{"repository", kRepository}, {"revision", "main"}, {"role", "model"}}}}});
    }
    program_.write("catalog.json", Json{{"models", models}, {"adapters", Json::array()}}.dump());
  }

  ProgramResult run(const std::vector<std::string>& words) {
    const ProgramSetup setup{
        .variables = {"MERERUN_CATALOG=" + (program_.folder() / "catalog.json").string(),
                      "HF_ENDPOINT=" + hub_.endpoint(),
                      "MERERUN_HUB_CACHE=" + (program_.folder() / "hub").string()}};
    return program_.run(words, {}, setup);
  }
  Json json(std::vector<std::string> words, int status = 0) {
    words.emplace_back("--json");
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, status) << result.err;
    return parse_json(result.out, "stdout");
  }
  void pull(const char* id) { ASSERT_EQ(run({"model", "pull", id, "-q"}).status, 0); }
  // The entry of a model in the list.
  Json listed(const std::string& id) {
    const Json list = json({"model", "list"});
    for (const Json& model : list["models"]) {
      if (model["id"] == id) return model;
    }
    return nullptr;
  }
  fs::path installed(const char* id) const { return program_.models() / id; }

  Program program_;
  FakeHub hub_;
};

TEST_F(ModelStore, ListsInstalledModelsFirst) {
  EXPECT_EQ(listed("image-one")["installed"], false);
  pull("image-two");
  const Json models = json({"model", "list"})["models"];
  EXPECT_EQ(models[0]["id"], "image-two");
  EXPECT_EQ(models[0]["state"], "complete");
  EXPECT_EQ(models[0]["family"], "klein");
  EXPECT_EQ(models[0]["runs_here"], true);
  const ProgramResult text = run({"model", "list"});
  EXPECT_LT(text.out.find("image-two"), text.out.find("AVAILABLE"));
  EXPECT_GT(text.out.find("image-one"), text.out.find("AVAILABLE"));
  EXPECT_EQ(json({"model", "info", "image-two"})["repository"], nullptr);
  EXPECT_EQ(json({"model", "info", "image-two"})["sources"][0]["repository"], kRepository);
  EXPECT_EQ(json({"model", "info", "tests/KLEIN"})["id"], "image-one");
  EXPECT_EQ(run({"model", "info", "nobody"}).status, 64);
  EXPECT_EQ(json({"model", "capabilities"})["models"].size(), 2U);
}

TEST_F(ModelStore, AMissingShardIsSeenRefusedAndFetchedAlone) {
  pull("image-one");
  const fs::path file = installed("image-one") / "vae/diffusion_pytorch_model.safetensors";
  fs::remove(fs::read_symlink(file));
  const Json model = listed("image-one");
  EXPECT_EQ(model["installed"], false);
  EXPECT_EQ(model["state"], "incomplete");
  EXPECT_EQ(model["file"], "vae/diffusion_pytorch_model.safetensors");
  const ProgramResult drawn =
      run({"image", "generate", "--model", "image-one", "-p", "x", "-o", "x.png"});
  EXPECT_EQ(drawn.status, 1);
  EXPECT_NE(drawn.err.find("vae/diffusion_pytorch_model.safetensors"), std::string::npos);
  const Json pulled = json({"model", "pull", "image-one", "-q"});
  EXPECT_EQ(pulled["models"][0]["fetched_bytes"], fs::file_size(file));
  EXPECT_EQ(listed("image-one")["state"], "complete");
}

TEST_F(ModelStore, VerifyFindsOneChangedByte) {
  pull("image-one");
  EXPECT_EQ(json({"model", "verify", "image-one"})["models"][0]["status"], "verified");
  const fs::path blob =
      fs::read_symlink(installed("image-one") / "vae/diffusion_pytorch_model.safetensors");
  fs::permissions(blob, fs::perms::owner_write, fs::perm_options::add);
  {
    std::fstream file(blob, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x7e');
  }
  const Json result = json({"model", "verify", "image-one"}, 1)["models"][0];
  EXPECT_EQ(result["status"], "failed");
  EXPECT_EQ(result["problems"][0]["file"], "vae/diffusion_pytorch_model.safetensors");
  EXPECT_EQ(run({"model", "pull", "image-one", "--force", "-q"}).status, 0);
  EXPECT_EQ(json({"model", "verify"})["status"], "completed");
}

TEST_F(ModelStore, RemovingKeepsWhatAnotherModelHas) {
  pull("image-one");
  pull("image-two");
  const Json before = json({"model", "storage"});
  EXPECT_EQ(before["unreferenced_bytes"], 0);
  EXPECT_GT(before["payload_bytes"], 0);
  Json removed = json({"model", "remove", "image-one"});
  EXPECT_EQ(removed["kept_for"], Json::array({"image-two"}));
  EXPECT_FALSE(fs::exists(installed("image-one")));
  EXPECT_EQ(json({"model", "verify", "image-two"})["status"], "completed");
  removed = json({"model", "remove", "image-two"});
  EXPECT_GE(removed["reclaimed_bytes"], before["payload_bytes"]);
  EXPECT_EQ(json({"model", "storage"})["payload_bytes"], 0);
  EXPECT_EQ(run({"model", "remove", "image-two"}).status, 64);
}

TEST_F(ModelStore, KeptPayloadsAreGarbageAfterAnHour) {
  pull("image-one");
  EXPECT_EQ(run({"model", "remove", "image-one", "--keep-cache"}).status, 0);
  Json gc = json({"model", "gc"});
  EXPECT_EQ(gc["removed"], false);
  EXPECT_GT(gc["too_young"], 0);
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(2);
  for (const auto& each : fs::recursive_directory_iterator(program_.folder() / "hub")) {
    if (!each.is_symlink()) fs::last_write_time(each.path(), old);
  }
  EXPECT_GT(json({"model", "gc"})["bytes"], 0);
  EXPECT_GT(json({"model", "storage"})["payload_bytes"], 0);
  EXPECT_EQ(json({"model", "gc", "--force"})["removed"], true);
  EXPECT_EQ(json({"model", "storage"})["payload_bytes"], 0);
}

TEST_F(ModelStore, AFolderThatWasNotPulledIsRecognisedAndGuarded) {
  fs::create_directories(program_.models());
  fs::copy(fs::path(MERE_FIXTURES) / "klein/model", installed("mine"), fs::copy_options::recursive);
  fs::remove(installed("mine") / "mererun_model.json");
  EXPECT_EQ(listed("mine")["family"], "klein");
  EXPECT_EQ(json({"model", "verify", "mine"})["models"][0]["status"], "unhashed");
  EXPECT_EQ(run({"model", "remove", "mine"}).status, 64);
  EXPECT_EQ(json({"model", "repair-manifests", "--dry-run"})["models"][0]["action"], "would_write");
  EXPECT_FALSE(fs::exists(installed("mine") / "mererun_model.json"));
  EXPECT_EQ(json({"model", "repair-manifests"})["models"][0]["action"], "written");
  EXPECT_TRUE(fs::exists(installed("mine") / "mererun_model.json"));
  EXPECT_EQ(run({"image", "generate", "--model", "MINE", "-p", "x", "--steps", "1", "-W", "64",
                 "-H", "64", "-o", "x.png"})
                .status,
            0);
  EXPECT_EQ(run({"model", "remove", "mine", "--force"}).status, 0);
  EXPECT_FALSE(fs::exists(installed("mine")));
}

}  // namespace
}  // namespace mere::test
