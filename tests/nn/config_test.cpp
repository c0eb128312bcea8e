// Configs that a model file must not be read with: refused with the file and the field named.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "nn/autoencoder_kl_flux2.h"
#include "nn/qwen3.h"

namespace mere {
namespace {

class ConfigFile {
 public:
  ConfigFile(const std::string& component, const std::function<void(Json&)>& change) {
    std::string name = (fs::temp_directory_path() / "mere-config-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    Json json =
        parse_json_file(fs::path(MERE_FIXTURES) / "klein" / "model" / component / "config.json");
    change(json);
    write_file_atomic(path(), json.dump());
  }
  ~ConfigFile() { fs::remove_all(folder_); }
  fs::path path() const { return folder_ / "config.json"; }

 private:
  fs::path folder_;
};

template <typename Config>
void expect_refused(const std::string& component, const std::function<void(Json&)>& change,
                    const std::string& word) {
  const ConfigFile file(component, change);
  try {
    Config::read(file.path());
    ADD_FAILURE() << "accepted: " << word;
  } catch (const IoError& e) {
    EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("config.json"), std::string::npos) << e.what();
  }
}

TEST(Qwen3Config, ReadsTheFixture) {
  const ConfigFile file("text_encoder", [](Json&) {});
  const Qwen3Config c = Qwen3Config::read(file.path());
  EXPECT_EQ(c.hidden_size, 32);
  EXPECT_EQ(c.head_dim, 16);  // not hidden / heads
  EXPECT_EQ(c.num_key_value_heads, 2);
  EXPECT_DOUBLE_EQ(c.rope_theta, 1e6);
}

TEST(Qwen3Config, ReadsNestedRotationSettings) {
  const ConfigFile file("text_encoder", [](Json& json) {
    json.erase("rope_theta");
    json["rope_parameters"] = {{"rope_theta", 5000}, {"rope_type", "default"}};
  });
  EXPECT_DOUBLE_EQ(Qwen3Config::read(file.path()).rope_theta, 5000);
}

TEST(Qwen3Config, AbsentFieldsTakeTheReferencesDefaults) {
  const ConfigFile file("text_encoder", [](Json& json) {
    json.erase("rope_theta");
    json.erase("head_dim");
    json["num_attention_heads"] = 32;
    json.erase("num_key_value_heads");
    json["rope_scaling"] = {{"rope_type", "default"}};
  });
  const Qwen3Config c = Qwen3Config::read(file.path());
  EXPECT_DOUBLE_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.num_key_value_heads, 32);
}

TEST(Qwen3Config, Refuses) {
  const auto refused = expect_refused<Qwen3Config>;
  const std::string part = "text_encoder";
  refused(
      part, [](Json& j) { j.erase("hidden_size"); }, "hidden_size");
  refused(
      part, [](Json& j) { j["hidden_size"] = -1; }, "hidden_size");
  refused(
      part, [](Json& j) { j["hidden_size"] = 1e30; }, "hidden_size");
  refused(
      part, [](Json& j) { j["num_hidden_layers"] = "29"; }, "num_hidden_layers");
  refused(
      part, [](Json& j) { j["hidden_act"] = "gelu"; }, "hidden_act");
  refused(
      part,
      [](Json& j) {
        j["rope_scaling"] = {{"type", "yarn"}};
      },
      "rotation");
  refused(
      part, [](Json& j) { j["num_key_value_heads"] = 3; }, "num_key_value_heads");
  refused(
      part, [](Json& j) { j["head_dim"] = 15; }, "head_dim");
  refused(
      part, [](Json& j) { j["use_sliding_window"] = true; }, "sliding_window");
}

TEST(AutoencoderConfig, Refuses) {
  const auto refused = expect_refused<AutoencoderKlFlux2Config>;
  refused(
      "vae", [](Json& j) { j["block_out_channels"] = Json::array(); }, "block_out_channels");
  refused(
      "vae",
      [](Json& j) {
        j["block_out_channels"] = {16, 17, 24, 24};
      },
      "norm_num_groups");
  refused(
      "vae", [](Json& j) { j["norm_num_groups"] = 0; }, "norm_num_groups");
  refused(
      "vae",
      [](Json& j) {
        j["patch_size"] = {4, 4};
      },
      "patch_size");
  refused(
      "vae", [](Json& j) { j["act_fn"] = "relu"; }, "act_fn");
  refused(
      "vae", [](Json& j) { j["in_channels"] = 4; }, "in_channels");
}

}  // namespace
}  // namespace mere
