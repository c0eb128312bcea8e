#include <gtest/gtest.h>
#include <thread>

#include "program.h"

#include "core/json.h"

namespace mere {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ModelLocation : public ::testing::Test {
 protected:
  ModelLocation() { fs::copy(kModel, elsewhere() / "my-emoji", fs::copy_options::recursive); }

  ProgramResult run(std::vector<std::string> words,
                    const std::vector<std::string>& variables = {}) const {
    words.insert(words.begin(), {"model", "location"});
    return program.run(words, {}, {.variables = variables});
  }
  // The standard output of a command that succeeds.
  std::string out(const std::vector<std::string>& words) const {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
  Json json(std::vector<std::string> words) const {
    words.emplace_back("--json");
    return parse_json(run(words).out, "stdout");
  }
  std::string refusal(const std::vector<std::string>& words) const {
    std::vector<std::string> with_json = words;
    with_json.emplace_back("--json");
    const ProgramResult result = run(with_json);
    EXPECT_EQ(result.status, 64) << result.err;
    return parse_json(result.out, "stdout").at("error").at("code");
  }
  fs::path file() const { return program.models().parent_path() / "model_locations.json"; }
  // A folder of models, and one of them.
  fs::path elsewhere() const {
    fs::create_directories(program.folder() / "elsewhere");
    return program.folder() / "elsewhere";
  }
  std::string model() const { return (elsewhere() / "my-emoji").string(); }

  const fs::path kModel = fs::path(MERE_MODELS) / "image-emoji-nano";
  Program program;
};

TEST_F(ModelLocation, AddsListsAndRemoves) {
  const std::string folder = elsewhere().string();
  const std::string head =
      "models folder: " + program.models().string() + "\nlocations: " + file().string() + "\n";
  EXPECT_EQ(out({"list"}), head + "  (none)\n");
  EXPECT_FALSE(fs::exists(file()));
  // Relative, with a slash at the end and a detour.
  EXPECT_EQ(out({"add", "./elsewhere/../elsewhere/"}), "Added " + folder + "\n");
  EXPECT_EQ(out({"add", "elsewhere"}), "Already a location: " + folder + "\n");
  EXPECT_EQ(out({"list"}), head + "  " + folder + "\n");
  EXPECT_EQ(out({"remove", "elsewhere"}), "Removed " + folder + "\n");
  EXPECT_EQ(out({"list"}), head + "  (none)\n");
  EXPECT_TRUE(fs::exists(model()));
}

TEST_F(ModelLocation, ALinkToALocationIsTheSameOne) {
  fs::create_directory_symlink(elsewhere(), program.folder() / "link");
  out({"add", "link"});
  EXPECT_EQ(json({"add", "elsewhere"}).at("status"), "unchanged");
  EXPECT_EQ(json({"remove", "elsewhere"}).at("path"), (program.folder() / "link").string());
}

TEST_F(ModelLocation, ALocationThatWentAwayIsListedAndCanBeRemoved) {
  out({"add", "elsewhere"});
  fs::rename(elsewhere(), program.folder() / "moved");
  EXPECT_TRUE(contains(out({"list"}), "elsewhere (not there)\n"));
  EXPECT_EQ(json({"list"}).at("roots").at(0).at("exists"), false);
  EXPECT_EQ(run({"remove", "elsewhere"}).status, 0);
}

TEST_F(ModelLocation, ModelsOfLocationsDraw) {
  out({"add", "elsewhere"});
  out({"bind", "bound-emoji", model()});
  for (const char* id : {"my-emoji", "bound-emoji"}) {
    const ProgramResult result =
        program.run({"image", "generate", "--model", id, "--prompt", "x", "--steps", "1", "-W",
                     "128", "-H", "128", "--output", std::string(id) + ".png"});
    EXPECT_EQ(result.status, 0) << result.err;
  }
}

TEST_F(ModelLocation, BindsAndUnbinds) {
  EXPECT_EQ(out({"bind", "My.Model", "elsewhere/my-emoji"}), "Bound My.Model = " + model() + "\n");
  EXPECT_EQ(out({"bind", "my.model", model()}), "Already bound: my.model = " + model() + "\n");
  EXPECT_TRUE(contains(out({"list"}), "\n  My.Model = " + model() + "\n"));
  fs::copy(model(), elsewhere() / "other", fs::copy_options::recursive);
  EXPECT_EQ(refusal({"bind", "my.model", "elsewhere/other"}), "already_bound");
  EXPECT_EQ(out({"unbind", "MY.MODEL"}), "Unbound My.Model = " + model() + "\n");
  EXPECT_EQ(refusal({"unbind", "my.model"}), "binding_unknown");
}

TEST_F(ModelLocation, ARestrictedModelIsBoundOnceItsLicenceIsAccepted) {
  const std::vector<std::string> bind = {"bind", "image-klein-9b", model()};
  const ProgramResult refused = run(bind);
  EXPECT_EQ(refused.status, 64);
  EXPECT_EQ(refused.out, "");
  EXPECT_TRUE(contains(refused.err, "--accept-model-license")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "FLUX Non-Commercial License")) << refused.err;
  EXPECT_EQ(refusal(bind), "license_not_accepted");
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(run({"bind", "IMAGE-KLEIN-9B", model(), "--accept-model-license"}).status, 0);
  const Json binding = json({"list"}).at("bindings").at(0);
  EXPECT_EQ(binding.at("id"), "image-klein-9b");
  EXPECT_EQ(binding.at("terms_accepted"), true);
  // Of a model without restrictions nothing was accepted.
  out({"bind", "image-klein-nano", model(), "--accept-model-license"});
  EXPECT_EQ(json({"list"}).at("bindings").at(1).at("terms_accepted"), false);
}

TEST_F(ModelLocation, RefusesWhatCannotBe) {
  program.write("empty/file", "x");
  EXPECT_EQ(refusal({"add", "none"}), "folder_not_found");
  EXPECT_EQ(refusal({"add", "empty/file"}), "folder_not_found");
  EXPECT_EQ(refusal({"add", ""}), "value_invalid");
  EXPECT_EQ(refusal({"add"}), "usage");
  EXPECT_EQ(refusal({"add", "empty", "elsewhere"}), "usage");
  fs::create_directories(program.models());
  EXPECT_EQ(refusal({"add", program.models().string()}), "location_is_store");
  EXPECT_EQ(refusal({"remove", "none"}), "location_unknown");
  EXPECT_EQ(refusal({"bind", "x", "none"}), "folder_not_found");
  EXPECT_EQ(refusal({"bind", "x", "empty"}), "not_a_model");
  EXPECT_EQ(refusal({"bind", "../x", model()}), "model_id_invalid");
  EXPECT_EQ(refusal({"bind", "x"}), "usage");
  EXPECT_EQ(refusal({"unbind", "x"}), "binding_unknown");
  fs::create_directory(program.folder() / "\xff");
  EXPECT_EQ(refusal({"add", "\xff"}), "path_not_utf8");
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(ModelLocation, SaysWhenTheLocationsAreOff) {
  const ProgramResult by_variable = run({"add", "elsewhere"}, {"MERERUN_MODELS_DIR=."});
  EXPECT_EQ(by_variable.status, 0);
  EXPECT_EQ(by_variable.err,
            "MERERUN_MODELS_DIR names a models folder, so the locations are not used with it\n");
  EXPECT_TRUE(contains(run({"list", "--models-root", "."}).err, "--models-root names"));
  EXPECT_EQ(json({"list", "--models-root", "."}).at("turned_off_by"), "--models-root");
  const ProgramResult on = run({"list"});
  EXPECT_EQ(on.err, "");
  EXPECT_EQ(json({"list"}).at("turned_off_by"), "");
}

TEST_F(ModelLocation, WarnsWhenAModelOfTheStoreHidesTheBinding) {
  fs::create_directories(program.models() / "mine");
  EXPECT_TRUE(contains(run({"bind", "mine", model()}).err, "that one is used"));
}

TEST_F(ModelLocation, Json) {
  Json document = json({"add", "elsewhere"});
  EXPECT_EQ(document.at("status"), "added");
  EXPECT_EQ(document.at("path"), elsewhere().string());
  EXPECT_EQ(document.at("file"), file().string());
  EXPECT_EQ(json({"add", "elsewhere"}).at("status"), "unchanged");
  document = json({"bind", "mine", model()});
  EXPECT_EQ(document.at("status"), "bound");
  EXPECT_EQ(document.at("id"), "mine");
  document = json({"list"});
  EXPECT_EQ(document.at("models_dir"), program.models().string());
  EXPECT_EQ(document.at("roots").at(0).at("path"), elsewhere().string());
  EXPECT_EQ(document.at("bindings").at(0).at("path"), model());
  EXPECT_EQ(document.at("bindings").at(0).at("exists"), true);
  EXPECT_EQ(json({"unbind", "mine"}).at("status"), "unbound");
  EXPECT_EQ(json({"remove", "elsewhere"}).at("status"), "removed");
}

// A location that silently disappears would look like a lost model.
TEST_F(ModelLocation, ADamagedFileIsAnErrorAndKept) {
  write_file_atomic(file(), "{\"roots\": [{\"path\": \"relative\"}]}");
  const std::string before = read_file(file(), 1000);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"list"}, {"add", "elsewhere"}}) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(contains(result.err, "model_locations.json")) << result.err;
  }
  EXPECT_EQ(read_file(file(), 1000), before);
}

TEST_F(ModelLocation, ProcessesAtOnceLoseNothing) {
  constexpr int kProcesses = 8;
  std::vector<std::thread> threads;
  for (int i = 0; i < kProcesses; ++i) {
    const std::string name = "root" + std::to_string(i);
    fs::create_directory(program.folder() / name);
    threads.emplace_back([this, name] { out({"add", name}); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(json({"list"}).at("roots").size(), kProcesses);
}

}  // namespace
}  // namespace mere
