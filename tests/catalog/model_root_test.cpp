#include "catalog/model_root.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

#include "core/error.h"

namespace mere {
namespace {

constexpr const char* kKleinIndex =
    R"({"_class_name": "Flux2KleinPipeline", "is_distilled": true})";

// Runs `action` and returns the error it throws; fails the test when it throws none.
template <typename Action>
ErrorInfo error_of(const Action& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.info();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

ErrorInfo manifest_error(const std::string& json) {
  TemporaryFolder folder;
  folder.write("mererun_model.json", json);
  return error_of([&] { open_model_root(folder.path()); });
}

TEST(ModelRoot, ReadsTheEmbeddedModelsManifest) {
  const ModelRoot model = open_model_root(fs::path(MERE_MODELS) / "image-emoji-nano");
  const Manifest& manifest = model.manifest;
  EXPECT_EQ(manifest.id, "image-emoji-nano");
  EXPECT_EQ(manifest.family, "klein");
  EXPECT_EQ(manifest.variant, "distilled");
  EXPECT_EQ(manifest.tier, "nano");
  EXPECT_EQ(manifest.precision, "bf16");
  EXPECT_EQ(manifest.steps, 4);
  EXPECT_EQ(manifest.cfg, 1.0);
  EXPECT_EQ(manifest.sigma_shift, std::nullopt);
  EXPECT_EQ(manifest.width, 128);
  EXPECT_EQ(manifest.height, 128);
  EXPECT_EQ(manifest.max_sequence_length, 64);
  EXPECT_EQ(manifest.text_encoder_out_layers, (std::vector<int64_t>{1, 2, 3}));
  ASSERT_EQ(manifest.sizes.size(), 1U);
  EXPECT_EQ(manifest.sizes[0].width, 128);
  EXPECT_TRUE(manifest.supports_stated);
  EXPECT_EQ(manifest.supports, (std::vector<std::string>{"txt2img", "lora_inference"}));
  EXPECT_EQ(model.component("vae"), model.path / "vae");
  EXPECT_TRUE(model.chosen_because.empty());
}

TEST(ModelRoot, RecognisesADiffusersFolder) {
  TemporaryFolder folder;
  folder.write("my model/model_index.json", kKleinIndex);
  const ModelRoot model = open_model_root(folder.path() / "my model");
  EXPECT_EQ(model.manifest.id, "my model");
  EXPECT_EQ(model.manifest.family, "klein");
  EXPECT_EQ(model.manifest.variant, "distilled");
  EXPECT_FALSE(model.manifest.supports_stated);
  EXPECT_EQ(model.component("transformer"), model.path / "transformer");

  folder.write("base/model_index.json",
               R"({"_class_name": "Flux2KleinPipeline", "is_distilled": false})");
  EXPECT_EQ(open_model_root(folder.path() / "base/").manifest.variant, "base");
  EXPECT_EQ(open_model_root(folder.path() / "base/").manifest.id, "base");

  // The reference's own default is not distilled.
  folder.write("silent/model_index.json", R"({"_class_name": "Flux2KleinPipeline"})");
  EXPECT_EQ(open_model_root(folder.path() / "silent").manifest.variant, "base");
}

TEST(ModelRoot, RefusesWhatIsNoModel) {
  TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { open_model_root(folder.path()); }).code, "not_a_model");
  EXPECT_EQ(error_of([&] { open_model_root(folder.path() / "none"); }).code, "model_not_found");
  const fs::path file = folder.write("model.safetensors", "x");
  EXPECT_EQ(error_of([&] { open_model_root(file); }).code, "model_not_a_folder");
  folder.write("model_index.json", R"({"_class_name": "StableDiffusionPipeline"})");
  const ErrorInfo info = error_of([&] { open_model_root(folder.path()); });
  EXPECT_EQ(info.code, "model_unsupported");
  EXPECT_NE(info.message.find("StableDiffusionPipeline"), std::string::npos);
}

// A shift of almost nothing drew NaN and blamed the weights.
TEST(ModelRoot, RefusesAShiftThatNoScheduleBears) {
  TemporaryFolder folder;
  folder.write("mererun_model.json", R"({"family": "klein", "defaults": {"sigma_shift": 1e-30}})");
  EXPECT_NE(error_of([&] { open_model_root(folder.path()); }).message.find("sigma_shift"),
            std::string::npos);
}

TEST(ModelRoot, IgnoresUnknownFieldsAndNulls) {
  TemporaryFolder folder;
  folder.write("mererun_model.json",
               R"({"schemaVersion": 2, "family": "klein", "future": {"a": [1]}, "tier": null,
                   "defaults": {"steps": null, "cfg": 2.5, "other": "x"}, "sizes": null})");
  const Manifest manifest = open_model_root(folder.path()).manifest;
  EXPECT_EQ(manifest.family, "klein");
  EXPECT_EQ(manifest.steps, std::nullopt);
  EXPECT_EQ(manifest.cfg, 2.5);
  EXPECT_TRUE(manifest.sizes.empty());
  EXPECT_FALSE(manifest.supports_stated);
  EXPECT_EQ(manifest.id, folder.path().filename().string());
}

TEST(ModelRoot, RefusesHostileManifests) {
  EXPECT_EQ(manifest_error("").code, "json_invalid");
  EXPECT_EQ(manifest_error("[]").code, "json_invalid");
  EXPECT_EQ(manifest_error("{\"family\": \"klein\"").code, "json_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "family": "x"})").code, "json_invalid");
  EXPECT_EQ(manifest_error(R"({"schemaVersion": 4, "family": "klein"})").code, "manifest_too_new");
  EXPECT_EQ(manifest_error(R"({"schemaVersion": "3", "family": "klein"})").code, "json_invalid");
  EXPECT_EQ(manifest_error(R"({"family": 7})").code, "json_invalid");
  EXPECT_EQ(manifest_error(R"({"id": "a\u001b[31m", "family": "klein"})").code, "manifest_invalid");
  EXPECT_EQ(manifest_error(R"({"id": ")" + std::string(200, 'a') + R"("})").code,
            "manifest_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "defaults": {"steps": 0}})").code,
            "json_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "defaults": {"steps": 1e99}})").code,
            "json_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "defaults": {"width": -5}})").code,
            "json_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "defaults": 3})").code, "manifest_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "sizes": [[128]]})").code, "manifest_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "sizes": [[128, 99999999999]]})").code,
            "json_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "sizes": 4})").code, "manifest_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "supports": [3]})").code, "json_invalid");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "components": []})").code, "manifest_invalid");
  EXPECT_EQ(manifest_error("{\"id\": \"" + std::string(2 << 20, 'a') + "\"}").code,
            "file_too_large");
  EXPECT_EQ(manifest_error(std::string(100'000, '[')).code, "json_invalid");
}

TEST(ModelRoot, KeepsLocalComponentsInsideTheModel) {
  for (const char* path : {"../outside", "/etc", "a/../../outside", ""}) {
    const std::string json = R"({"family": "klein", "components": {"vae": {"type": "local",)"
                             R"( "path": ")" +
                             std::string(path) + R"("}}})";
    EXPECT_EQ(manifest_error(json).code, "path_refused") << path;
  }
  TemporaryFolder folder;
  fs::create_directory_symlink("/", folder.path() / "link");
  folder.write("mererun_model.json",
               R"({"family": "klein", "components": {"vae": {"path": "link/etc"}}})");
  EXPECT_EQ(error_of([&] { open_model_root(folder.path()); }).code, "path_refused");
}

TEST(ModelRoot, FindsComponentsByTable) {
  TemporaryFolder folder;
  folder.write("shared/vae/config.json", "{}");
  folder.write("model/here/config.json", "{}");
  const std::string absolute = (folder.path() / "shared/vae").string();
  folder.write("model/mererun_model.json",
               R"({"family": "klein", "components": {
                 "transformer": {"type": "local", "path": "sub/dit"},
                 "vae": {"type": "absolute", "path": ")" +
                   absolute + R"("},
                 "text_encoder": {"type": "anyOf", "candidates": [
                   {"type": "local", "path": "missing"},
                   {"type": "model", "modelId": "other", "path": "text_encoder"},
                   {"type": "local", "path": "here"}]}}})");
  const ModelRoot model = open_model_root(folder.path() / "model");
  EXPECT_EQ(model.component("transformer"), model.path / "sub/dit");
  EXPECT_EQ(model.component("vae"), absolute);
  EXPECT_EQ(model.component("text_encoder"), model.path / "here");
  EXPECT_EQ(model.component("tokenizer"), model.path / "tokenizer");
}

TEST(ModelRoot, NamesAComponentTypeItCannotUse) {
  for (const char* type : {"remote", "model", "???"}) {
    const ErrorInfo info =
        manifest_error(R"({"family": "klein", "components": {"vae": {"type": ")" +
                       std::string(type) + R"(", "modelId": "x"}}})");
    EXPECT_EQ(info.code, "component_unsupported");
    EXPECT_NE(info.message.find(type), std::string::npos);
    EXPECT_NE(info.message.find("vae"), std::string::npos);
  }
  const ErrorInfo none = manifest_error(
      R"({"family": "klein", "components": {"vae": {"type": "anyOf", "candidates": [
          {"type": "remote", "id": "x"}, {"type": "local", "path": "missing"}]}}})");
  EXPECT_EQ(none.code, "model_incomplete");
  EXPECT_EQ(manifest_error(R"({"family": "klein", "components": {"vae": {"type": "absolute",
                               "path": "relative"}}})")
                .code,
            "manifest_invalid");
}

class ResolveModel : public ::testing::Test {
 protected:
  void install(const std::string& id, const std::string& family) {
    folder.write("models/" + id + "/mererun_model.json",
                 R"({"id": ")" + id + R"(", "family": ")" + family + R"("})");
  }
  ModelRoot resolve(const std::string& requested) {
    return resolve_image_model(requested, models, {"klein", "zimage"});
  }
  TemporaryFolder folder;
  fs::path models = folder.path() / "models";
};

TEST_F(ResolveModel, TakesIdsFromTheModelsFolder) {
  install("image-klein-nano", "klein");
  EXPECT_EQ(resolve("image-klein-nano").manifest.id, "image-klein-nano");
  EXPECT_EQ(resolve(" Image-Klein-NANO ").manifest.id, "image-klein-nano");
  EXPECT_TRUE(resolve("image-klein-nano").chosen_because.empty());
}

TEST_F(ResolveModel, TakesPaths) {
  folder.write("elsewhere/model_index.json", kKleinIndex);
  EXPECT_EQ(resolve((folder.path() / "elsewhere").string()).manifest.id, "elsewhere");
}

TEST_F(ResolveModel, APathThatIsNotThereIsNoId) {
  for (const char* name : {"/nowhere", "../../none", "org/repo"}) {
    const ErrorInfo info = error_of([&] { resolve(name); });
    EXPECT_EQ(info.code, "model_not_found") << name;
    EXPECT_EQ(info.message, std::string("no such folder: ") + name);
  }
}

TEST_F(ResolveModel, RefusesWhatIsNotInstalled) {
  install("image-klein-nano", "klein");
  for (const char* name : {"no-such-model", "..", ".hidden", "a\nb"}) {
    if (fs::is_directory(name)) continue;
    const ErrorInfo info = error_of([&] { resolve(name); });
    EXPECT_EQ(info.code, "model_not_installed") << name;
    EXPECT_EQ(info.field, "--model");
    EXPECT_NE(info.message.find(models.string()), std::string::npos);
    EXPECT_NE(info.hint.find("image-klein-nano"), std::string::npos);
  }
}

TEST_F(ResolveModel, ChoosesAnInstalledModelOverTheEmbeddedOne) {
  install("a-model", "klein");
  install("text-model", "gemma");
  EXPECT_EQ(resolve("").manifest.id, "a-model");
  EXPECT_NE(resolve("").chosen_because.find("only image model"), std::string::npos);
  install("image-klein-max", "klein");
  EXPECT_EQ(resolve("").manifest.id, "image-klein-max");
  install("image-zimage-nano", "zimage");
  EXPECT_EQ(resolve("").manifest.id, "image-zimage-nano");
  EXPECT_NE(resolve("").chosen_because.find("first of the 3"), std::string::npos);
}

TEST_F(ResolveModel, ABrokenFolderHidesNoOther) {
  install("image-klein-max", "klein");
  folder.write("models/image-klein-a/mererun_model.json", "{broken");
  fs::create_directory_symlink(models / "loop", models / "loop");
  EXPECT_EQ(resolve("").manifest.id, "image-klein-max");
}

TEST_F(ResolveModel, FallsBackToTheEmbeddedModelAndSaysSo) {
  const auto embedded = embedded_model_dir();
  if (!embedded) {
    EXPECT_EQ(error_of([&] { resolve(""); }).code, "model_not_installed");
    return;
  }
  EXPECT_EQ(resolve("").manifest.id, "image-emoji-nano");
  EXPECT_NE(resolve("").chosen_because.find("no other image model is installed"),
            std::string::npos);
  EXPECT_TRUE(resolve("image-emoji-nano").chosen_because.empty());
}

}  // namespace
}  // namespace mere
