#include "lora/adapter.h"

#include <gtest/gtest.h>

#include "adapter_file.h"

namespace mere::test {
namespace {

const Matrix kA = Matrix::made(2, 4, 1);
const Matrix kB6 = Matrix::made(6, 2, 2);
const Matrix kB8 = Matrix::made(8, 2, 3);

Adapter read(const AdapterFile& file, const std::string& name = "adapter.safetensors") {
  return read_adapter(file.write(name), toy_targets());
}

TEST(Adapter, KeepsMatricesAsStored) {
  const Adapter adapter = read(AdapterFile().pair("transformer.out", kA, kB6));
  ASSERT_EQ(adapter.deltas.size(), 1U);
  const LoraDelta& delta = adapter.deltas.at("out").at(0);
  EXPECT_EQ(delta.a.dtype(), mx::float32);
  EXPECT_EQ(delta.a.shape(), (mx::Shape{2, 4}));
  EXPECT_EQ(delta.b.shape(), (mx::Shape{6, 2}));
  EXPECT_EQ(to_floats(delta.a), kA.values);
  EXPECT_EQ(to_floats(delta.b), kB6.values);
  EXPECT_EQ(delta.factor, 1.0F);
  EXPECT_EQ(delta.row_offset, 0);
  EXPECT_EQ(delta.rows, 6);
  EXPECT_EQ(adapter.applied, 1);
  EXPECT_EQ(adapter.total, 1);
  EXPECT_TRUE(adapter.unmatched.empty());
}

TEST(Adapter, KeepsHalfPrecision) {
  // 1, -2 in float16 and bfloat16.
  const std::string f16("\x00\x3C\x00\xC0", 4);
  const std::string bf16("\x80\x3F\x00\xC0", 4);
  const LoraTargets targets{.family = "Toy", .names = {{.name = "m", .targets = {{"m", 0, 2, 2}}}}};
  const AdapterFile file = AdapterFile()
                               .raw("m.lora_A.weight", "F16", {1, 2}, f16)
                               .raw("m.lora_B.weight", "BF16", {2, 1}, bf16);
  const Adapter adapter = read_adapter(file.write(), targets);
  const LoraDelta& delta = adapter.deltas.at("m").at(0);
  EXPECT_EQ(delta.a.dtype(), mx::float16);
  EXPECT_EQ(delta.b.dtype(), mx::bfloat16);
  EXPECT_EQ(to_floats(delta.a), (std::vector<float>{1, -2}));
  EXPECT_EQ(to_floats(delta.b), (std::vector<float>{1, -2}));
}

TEST(Adapter, SplitsRowsOfAFusedModule) {
  const Matrix b = Matrix::stacked({kB8, kB6});
  const Adapter adapter = read(AdapterFile().pair("all", kA, b));
  EXPECT_EQ(adapter.applied, 1);
  EXPECT_EQ(to_floats(adapter.deltas.at("blocks.0.attn.qk").at(0).b), kB8.values);
  EXPECT_EQ(to_floats(adapter.deltas.at("out").at(0).b), kB6.values);
}

TEST(Adapter, PlacesPartsInTheirRows) {
  const Adapter adapter = read(AdapterFile()
                                   .pair("blocks.0.attn.q", kA, kB8.slice(0, 4))
                                   .pair("blocks.0.attn.k", kA, kB8.slice(4, 4)));
  const auto parts = dense(adapter, {{"blocks.0.attn.qk", 8}});
  const auto whole =
      dense(read(AdapterFile().pair("blocks.0.attn.qk", kA, kB8)), {{"blocks.0.attn.qk", 8}});
  EXPECT_EQ(adapter.applied, 2);
  EXPECT_EQ(parts, whole);
}

TEST(Adapter, SwapsHalvesWhereTheReleaseStoresThemSwapped) {
  const Matrix swapped = Matrix::stacked({kB6.slice(3, 3), kB6.slice(0, 3)});
  EXPECT_EQ(dense(read(AdapterFile().pair("old.out", kA, swapped)), {{"out", 6}}),
            dense(read(AdapterFile().pair("out", kA, kB6)), {{"out", 6}}));
}

TEST(Adapter, ReadsMatricesOfOneByOneConvolutions) {
  const AdapterFile file = AdapterFile()
                               .floats("out.lora_down.weight", {2, 4, 1, 1}, kA.values)
                               .floats("out.lora_up.weight", {6, 2, 1, 1}, kB6.values);
  EXPECT_EQ(read(file).deltas.at("out").at(0).a.shape(), (mx::Shape{2, 4}));
}

TEST(Adapter, TakesAlphaOverRank) {
  EXPECT_EQ(read(AdapterFile().pair("out", kA, kB6).floats("out.alpha", {}, {3.0F}))
                .deltas.at("out")[0]
                .factor,
            1.5F);
  EXPECT_EQ(read(AdapterFile().pair("out", kA, kB6).floats("out.alpha", {1}, {1.0F}))
                .deltas.at("out")[0]
                .factor,
            0.5F);
  const double wide = 8;
  EXPECT_EQ(read(AdapterFile()
                     .pair("out", kA, kB6)
                     .raw("out.alpha", "F64", {}, {reinterpret_cast<const char*>(&wide), 8}))
                .deltas.at("out")[0]
                .factor,
            4.0F);
  EXPECT_EQ(read(AdapterFile()
                     .pair("out", kA, kB6)
                     .raw("out.alpha", "BF16", {}, std::string("\x80\x40", 2)))
                .deltas.at("out")[0]
                .factor,
            2.0F);
}

TEST(Adapter, ReadsAlphaFromMetadata) {
  const std::string json =
      R"({"transformer.r": 2, "transformer.lora_alpha": 4,
          "transformer.alpha_pattern": {"out": 1.0, "attn.q": 6, "^transformer\\.blocks\\.0\\.attn\\.k$": 10}})";
  const AdapterFile file = AdapterFile()
                               .pair("transformer.out", kA, kB6)
                               .pair("transformer.blocks.0.attn.q", kA, kB8.slice(0, 4))
                               .pair("transformer.blocks.0.attn.k", kA, kB8.slice(4, 4))
                               .metadata("lora_adapter_metadata", json);
  const Adapter adapter = read(file);
  EXPECT_EQ(adapter.deltas.at("out")[0].factor, 0.5F);
  EXPECT_EQ(adapter.deltas.at("blocks.0.attn.qk")[0].factor, 5.0F);  // k before q
  EXPECT_EQ(adapter.deltas.at("blocks.0.attn.qk")[1].factor, 3.0F);
}

TEST(Adapter, PatternsEndAtNamesNotInsideThem) {
  const AdapterFile file =
      AdapterFile()
          .pair("old.out", kA, kB6)
          .metadata("lora_adapter_metadata", R"({"lora_alpha": 4, "alpha_pattern": {"ut": 1}})");
  EXPECT_EQ(read(file).deltas.at("out")[0].factor, 2.0F);
}

TEST(Adapter, AlphaTensorBeatsMetadata) {
  const AdapterFile file = AdapterFile()
                               .pair("out", kA, kB6)
                               .floats("out.alpha", {}, {2.0F})
                               .metadata("lora_adapter_metadata", R"({"lora_alpha": 8})");
  EXPECT_EQ(read(file).deltas.at("out")[0].factor, 1.0F);
}

TEST(Adapter, RankStabilisedAdaptersDivideByTheRoot) {
  const Matrix a = Matrix::made(4, 4, 5);
  const Matrix b = Matrix::made(6, 4, 6);
  const AdapterFile file =
      AdapterFile()
          .pair("out", a, b)
          .metadata("lora_adapter_metadata", R"({"lora_alpha": 8, "use_rslora": true})");
  EXPECT_EQ(read(file).deltas.at("out")[0].factor, 4.0F);
}

TEST(Adapter, ReadsTheConfigBesideAFileOfPeftsOwnName) {
  AdapterFile::write_bytes(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6})",
                           "adapter_config.json");
  const AdapterFile file = AdapterFile().pair("base_model.model.out", kA, kB6);
  EXPECT_EQ(read(file, "adapter_model.safetensors").deltas.at("out")[0].factor, 3.0F);
  EXPECT_EQ(read(file, "other.safetensors").deltas.at("out")[0].factor, 1.0F);
}

TEST(Adapter, ListsWhatHasNoPlace) {
  const AdapterFile file = AdapterFile()
                               .pair("transformer.out", kA, kB6)
                               .pair("transformer.nowhere", kA, kB6)
                               .pair("text_encoder.layers.0.self_attn.q_proj", kA, kB6)
                               .matrix("lora_te_layers_0_mlp_fc1.lora_down.weight", kA)
                               .matrix("lora_te_layers_0_mlp_fc1.lora_up.weight", kB6)
                               .matrix("transformer.out.bias", kA);
  const Adapter adapter = read(file);
  EXPECT_EQ(adapter.applied, 1);
  EXPECT_EQ(adapter.total, 5);
  EXPECT_EQ(adapter.unmatched,
            (std::vector<std::string>{"lora_te_layers_0_mlp_fc1",
                                      "text_encoder.layers.0.self_attn.q_proj",
                                      "transformer.nowhere", "transformer.out.bias"}));
}

TEST(Adapter, NoMatchIsAnErrorThatNamesThreeModules) {
  const AdapterFile file = AdapterFile()
                               .pair("some.where", kA, kB6)
                               .pair("some.thing", kA, kB6)
                               .pair("some.one", kA, kB6)
                               .pair("some.zone", kA, kB6);
  const fs::path path = file.write();
  EXPECT_EQ(message_of<UsageError>([&] { read_adapter(path, toy_targets()); }),
            path.string() +
                ": none of its 4 modules belongs to Toy; unmatched: \"some.one\", \"some.thing\", "
                "\"some.where\" (use an adapter made for Toy)");
}

TEST(Adapter, MissingFileIsTheCallersMistake) {
  EXPECT_EQ(message_of<UsageError>([] { read_adapter("/nowhere/x.safetensors", toy_targets()); }),
            "/nowhere/x.safetensors: no such adapter file (give the path of a .safetensors file)");
  const fs::path folder = AdapterFile::folder();
  EXPECT_NE(message_of<UsageError>([&] { read_adapter(folder, toy_targets()); }).find("not a file"),
            std::string::npos);
}

TEST(Adapter, RefusesOtherKindsByName) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"lora_unet_out.lokr_w1", "LoKr"},
      {"lora_unet_out.lokr_w2_a", "LoKr"},
      {"lora_unet_out.hada_w1_a", "LoHa"},
      {"lora_unet_out.dora_scale", "DoRA"},
      {"base_model.model.out.lora_magnitude_vector", "DoRA"},
      {"diffusion_model.out.diff", "full weight difference"},
      {"diffusion_model.out.diff_b", "full bias difference"},
      {"lora_unet_out.oft_blocks", "OFT"},
      {"out.lora_B.bias", "LoRA with biases"},
  };
  for (const auto& [name, kind] : kinds) {
    const fs::path path = AdapterFile().pair("out", kA, kB6).matrix(name, kA).write();
    const std::string message = message_of<UsageError>([&] { read_adapter(path, toy_targets()); });
    EXPECT_EQ(message.rfind(path.string() + ": ", 0), 0U) << message;
    EXPECT_NE(message.find(kind), std::string::npos) << message;
    EXPECT_NE(message.find("\"" + name + "\""), std::string::npos) << message;
    EXPECT_NE(message.find("is not supported"), std::string::npos) << message;
  }
  const fs::path dora =
      AdapterFile()
          .pair("out", kA, kB6)
          .metadata("lora_adapter_metadata", R"({"lora_alpha": 1, "use_dora": true})")
          .write();
  EXPECT_NE(message_of<UsageError>([&] { read_adapter(dora, toy_targets()); }).find("DoRA"),
            std::string::npos);
}

TEST(Adapter, AWholeModelIsNotAnAdapter) {
  const fs::path path = AdapterFile().matrix("out.weight", kA).write();
  const std::string message = message_of<UsageError>([&] { read_adapter(path, toy_targets()); });
  EXPECT_NE(message.find("not a LoRA adapter"), std::string::npos) << message;
  EXPECT_NE(message.find("\"out.weight\""), std::string::npos) << message;
  const fs::path empty = AdapterFile().write("empty.safetensors");
  EXPECT_NE(message_of<UsageError>([&] { read_adapter(empty, toy_targets()); }).find("it is empty"),
            std::string::npos);
}

}  // namespace
}  // namespace mere::test
