// Adapters of the Klein family: the recorded ones, and one adapter in every spelling.
#include <gtest/gtest.h>
#include <set>

#include "adapter_file.h"

#include "families/klein/lora_targets.h"
#include "tensor/safetensors.h"

namespace mere::test {
namespace {

const fs::path kFixtures = fs::path(MERE_FIXTURES) / "klein";

// tests/fixtures/klein/model
const klein::TransformerShape kShape{.double_blocks = 2,
                                     .single_blocks = 2,
                                     .hidden = 64,
                                     .mlp_hidden = 192,
                                     .in_channels = 128,
                                     .out_channels = 128,
                                     .context_dim = 96,
                                     .timestep_channels = 256};

std::map<std::string, int64_t> rows_of(const LoraTargets& targets) {
  std::map<std::string, int64_t> rows;
  for (const LoraAlias& alias : targets.names) {
    for (const LoraTarget& target : alias.targets) {
      rows[target.module] = std::max(rows[target.module], target.row_offset + target.rows);
    }
  }
  return rows;
}

// Every module of a checkpoint is a target under its own name, with its shape, and nothing else is.
void expect_modules_of(const fs::path& checkpoint, const klein::TransformerShape& shape) {
  std::map<std::string, std::pair<int64_t, int64_t>> modules;
  for (const LoraAlias& alias : klein::lora_targets(shape).names) {
    if (alias.targets.size() != 1 || alias.targets[0].module != alias.name) continue;
    modules[alias.name] = {alias.targets[0].rows, alias.targets[0].in};
  }
  size_t linears = 0;
  const SafetensorsFile file(checkpoint);
  for (const auto& [name, tensor] : file.tensors()) {
    if (tensor.shape.size() != 2) continue;
    const std::string module = name.substr(0, name.size() - std::string(".weight").size());
    ASSERT_TRUE(modules.contains(module)) << module;
    EXPECT_EQ(modules[module], std::pair(tensor.shape[0], tensor.shape[1])) << module;
    ++linears;
  }
  EXPECT_EQ(linears, modules.size());
}

TEST(KleinTargets, AreTheLinearsOfTheCheckpoint) {
  expect_modules_of(kFixtures / "model/transformer/diffusion_pytorch_model.safetensors", kShape);
  expect_modules_of(kFixtures / "extra/transformer_guidance/diffusion_pytorch_model.safetensors",
                    {.double_blocks = 1,
                     .single_blocks = 1,
                     .hidden = 32,
                     .mlp_hidden = 96,
                     .in_channels = 16,
                     .out_channels = 16,
                     .context_dim = 24,
                     .timestep_channels = 32,
                     .guidance_embeds = true});
}

TEST(KleinTargets, NamesAreUniqueAlsoWithUnderscores) {
  std::set<std::string> dotted;
  std::set<std::string> flat;
  const LoraTargets targets = klein::lora_targets(kShape);
  const auto rows = rows_of(targets);
  for (const LoraAlias& alias : targets.names) {
    EXPECT_TRUE(dotted.insert(alias.name).second) << alias.name;
    std::string name = alias.name;
    std::ranges::replace(name, '.', '_');
    EXPECT_TRUE(flat.insert(name).second) << name;
    for (const LoraTarget& target : alias.targets) {
      EXPECT_TRUE(dotted.contains(target.module)) << target.module;
      EXPECT_EQ(target.in, alias.targets[0].in);
      EXPECT_LE(target.row_offset + target.rows, rows.at(target.module));
    }
  }
}

TEST(KleinTargets, KnowTheNamesOfMflux) {
  std::set<std::string> names;
  for (const LoraAlias& alias : klein::lora_targets(kShape).names) names.insert(alias.name);
  std::ifstream stream(kFixtures / "cases/mflux_names.json");
  const auto table = nlohmann::json::parse(stream);
  for (const auto& row : table.at("transformer").at("pairs")) {
    auto name = row.at(1).get<std::string>();
    if (name.find("norm_q") != std::string::npos || name.find("norm_k") != std::string::npos ||
        name.find("norm_added") != std::string::npos) {
      continue;
    }
    name.resize(name.size() - std::string(".weight").size());
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

struct Recorded {
  const char* file;
  int64_t total;
  float factor;
  std::map<std::string, float> exceptions;
};

class RecordedAdapter : public testing::TestWithParam<Recorded> {};

TEST_P(RecordedAdapter, AppliesWholeWithItsFactor) {
  const LoraTargets targets = klein::lora_targets(kShape);
  const Adapter adapter = read_adapter(kFixtures / "lora" / GetParam().file, targets);
  EXPECT_EQ(adapter.applied, GetParam().total);
  EXPECT_EQ(adapter.total, GetParam().total);
  EXPECT_TRUE(adapter.unmatched.empty());
  for (const auto& [module, deltas] : adapter.deltas) {
    const auto it = GetParam().exceptions.find(module);
    const float factor = it == GetParam().exceptions.end() ? GetParam().factor : it->second;
    for (const LoraDelta& delta : deltas) EXPECT_EQ(delta.factor, factor) << module;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RecordedAdapter,
    testing::Values(Recorded{"diffusers_plain.safetensors", 20, 1.0F, {}},
                    Recorded{"diffusers_alpha_metadata.safetensors",
                             29,
                             2.0F,
                             {{"x_embedder", 0.25F}, {"proj_out", 4.0F}}},
                    Recorded{"bfl_ai_toolkit.safetensors", 18, 1.0F, {}},
                    Recorded{"kohya.safetensors", 18, 0.5F, {}},
                    Recorded{"peft_alpha_keys.safetensors", 16, 0.5F, {}},
                    Recorded{"peft_alpha_keys.equivalent.safetensors", 16, 1.0F, {}}),
    [](const auto& info) {
      std::string name = info.param.file;
      name.resize(name.rfind('.'));
      std::ranges::replace(name, '.', '_');
      return name;
    });

void expect_near(const std::map<std::string, std::vector<double>>& actual,
                 const std::map<std::string, std::vector<double>>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [module, values] : expected) {
    ASSERT_TRUE(actual.contains(module)) << module;
    const std::vector<double>& found = actual.at(module);
    ASSERT_EQ(found.size(), values.size()) << module;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(found[i], values[i], 1e-5) << module << " at " << i;
    }
  }
}

TEST(KleinAdapter, AlphaKeysEqualTheAdapterWithAlphaFoldedIn) {
  const LoraTargets targets = klein::lora_targets(kShape);
  const auto rows = rows_of(targets);
  const auto read = [&](const char* name) {
    return dense(read_adapter(kFixtures / "lora" / name, targets), rows);
  };
  expect_near(read("peft_alpha_keys.safetensors"), read("peft_alpha_keys.equivalent.safetensors"));
}

// ---- one adapter, every spelling ----

const klein::TransformerShape kTiny{.double_blocks = 1,
                                    .single_blocks = 1,
                                    .hidden = 8,
                                    .mlp_hidden = 12,
                                    .in_channels = 16,
                                    .out_channels = 16,
                                    .context_dim = 24,
                                    .timestep_channels = 32};
constexpr int64_t kRank = 2;

// One module: q, k and v of a stream share their A, as an adapter on the fused projection has it.
struct Pair {
  std::string module;
  Matrix a;
  Matrix b;
};

std::vector<Pair> tiny_adapter() {
  const int64_t h = kTiny.hidden;
  const int64_t m = kTiny.mlp_hidden;
  const Matrix image = Matrix::made(kRank, h, 100);
  const Matrix text = Matrix::made(kRank, h, 101);
  const std::string d = "transformer_blocks.0.";
  const std::string s = "single_transformer_blocks.0.attn.";
  const auto b = [](int64_t rows, uint32_t seed) { return Matrix::made(rows, kRank, seed); };
  const auto a = [](int64_t in, uint32_t seed) { return Matrix::made(kRank, in, seed); };
  return {{d + "attn.to_q", image, b(h, 1)},
          {d + "attn.to_k", image, b(h, 2)},
          {d + "attn.to_v", image, b(h, 3)},
          {d + "attn.add_q_proj", text, b(h, 4)},
          {d + "attn.add_k_proj", text, b(h, 5)},
          {d + "attn.add_v_proj", text, b(h, 6)},
          {d + "attn.to_out.0", a(h, 102), b(h, 7)},
          {d + "attn.to_add_out", a(h, 103), b(h, 8)},
          {d + "ff.linear_in", a(h, 104), b(2 * m, 9)},
          {d + "ff.linear_out", a(m, 105), b(h, 10)},
          {d + "ff_context.linear_in", a(h, 106), b(2 * m, 11)},
          {d + "ff_context.linear_out", a(m, 107), b(h, 12)},
          {s + "to_qkv_mlp_proj", a(h, 108), b(3 * h + 2 * m, 13)},
          {s + "to_out", a(h + m, 109), b(h, 14)},
          {"x_embedder", a(16, 110), b(h, 15)},
          {"context_embedder", a(24, 111), b(h, 16)},
          {"time_guidance_embed.timestep_embedder.linear_1", a(32, 112), b(h, 17)},
          {"time_guidance_embed.timestep_embedder.linear_2", a(h, 113), b(h, 18)},
          {"double_stream_modulation_img.linear", a(h, 114), b(6 * h, 19)},
          {"double_stream_modulation_txt.linear", a(h, 115), b(6 * h, 20)},
          {"single_stream_modulation.linear", a(h, 116), b(3 * h, 21)},
          {"norm_out.linear", a(h, 117), b(2 * h, 22)},
          {"proj_out", a(h, 118), b(16, 23)}};
}

std::vector<Pair> renamed(std::vector<Pair> pairs,
                          const std::map<std::string, std::string>& names) {
  for (Pair& pair : pairs) {
    const auto it = names.find(pair.module);
    if (it != names.end()) pair.module = it->second;
  }
  return pairs;
}

// Replaces three modules that share their A by one.
std::vector<Pair> fused(const std::vector<Pair>& pairs, const std::vector<std::string>& parts,
                        const std::string& name) {
  std::vector<Pair> out;
  std::vector<Matrix> rows(parts.size());
  Matrix a;
  for (const Pair& pair : pairs) {
    const auto it = std::ranges::find(parts, pair.module);
    if (it == parts.end()) {
      out.push_back(pair);
      continue;
    }
    rows[static_cast<size_t>(it - parts.begin())] = pair.b;
    a = pair.a;
  }
  out.push_back({name, a, Matrix::stacked(rows)});
  return out;
}

std::vector<Pair> with_fused_attention(const std::vector<Pair>& pairs, const std::string& image,
                                       const std::string& text) {
  const std::string d = "transformer_blocks.0.attn.";
  return fused(fused(pairs, {d + "to_q", d + "to_k", d + "to_v"}, image),
               {d + "add_q_proj", d + "add_k_proj", d + "add_v_proj"}, text);
}

std::vector<Pair> original_release() {
  const std::string d = "transformer_blocks.0.";
  const std::string s = "single_transformer_blocks.0.attn.";
  std::vector<Pair> pairs =
      renamed(with_fused_attention(tiny_adapter(), "double_blocks.0.img_attn.qkv",
                                   "double_blocks.0.txt_attn.qkv"),
              {{d + "attn.to_out.0", "double_blocks.0.img_attn.proj"},
               {d + "attn.to_add_out", "double_blocks.0.txt_attn.proj"},
               {d + "ff.linear_in", "double_blocks.0.img_mlp.0"},
               {d + "ff.linear_out", "double_blocks.0.img_mlp.2"},
               {d + "ff_context.linear_in", "double_blocks.0.txt_mlp.0"},
               {d + "ff_context.linear_out", "double_blocks.0.txt_mlp.2"},
               {s + "to_qkv_mlp_proj", "single_blocks.0.linear1"},
               {s + "to_out", "single_blocks.0.linear2"},
               {"x_embedder", "img_in"},
               {"context_embedder", "txt_in"},
               {"time_guidance_embed.timestep_embedder.linear_1", "time_in.in_layer"},
               {"time_guidance_embed.timestep_embedder.linear_2", "time_in.out_layer"},
               {"double_stream_modulation_img.linear", "double_stream_modulation_img.lin"},
               {"double_stream_modulation_txt.linear", "double_stream_modulation_txt.lin"},
               {"single_stream_modulation.linear", "single_stream_modulation.lin"},
               {"norm_out.linear", "final_layer.adaLN_modulation.1"},
               {"proj_out", "final_layer.linear"}});
  for (Pair& pair : pairs) {
    if (pair.module != "final_layer.adaLN_modulation.1") continue;
    const int64_t half = pair.b.rows / 2;
    pair.b = Matrix::stacked({pair.b.slice(half, half), pair.b.slice(0, half)});
  }
  return pairs;
}

std::vector<Pair> mflux() {
  return renamed(
      tiny_adapter(),
      {{"transformer_blocks.0.attn.to_out.0", "transformer_blocks.0.attn.to_out"},
       {"time_guidance_embed.timestep_embedder.linear_1", "time_guidance_embed.linear_1"},
       {"time_guidance_embed.timestep_embedder.linear_2", "time_guidance_embed.linear_2"}});
}

std::vector<Pair> split_single_block(const std::string& mlp) {
  const std::string s = "single_transformer_blocks.0.attn.";
  const int64_t h = kTiny.hidden;
  std::vector<Pair> out;
  for (const Pair& pair : tiny_adapter()) {
    if (pair.module != s + "to_qkv_mlp_proj") {
      out.push_back(pair);
      continue;
    }
    out.push_back({s + "to_q", pair.a, pair.b.slice(0, h)});
    out.push_back({s + "to_k", pair.a, pair.b.slice(h, h)});
    out.push_back({s + "to_v", pair.a, pair.b.slice(2 * h, h)});
    out.push_back({mlp, pair.a, pair.b.slice(3 * h, pair.b.rows - 3 * h)});
  }
  return out;
}

struct Spelling {
  const char* name;
  std::string prefix, down, up;
  bool flat = false;
  std::optional<float> alpha = {};
};

const Spelling kSpellings[] = {
    {"diffusers", "transformer.", ".lora_A.weight", ".lora_B.weight"},
    {"diffusers_with_alpha", "transformer.", ".lora_A.weight", ".lora_B.weight", false, 3.0F},
    {"peft", "base_model.model.", ".lora_A.default.weight", ".lora_B.default.weight"},
    {"peft_nested", "base_model.model.transformer.", ".lora_A.weight", ".lora_B.weight"},
    {"toolkit", "diffusion_model.", ".lora_A.weight", ".lora_B.weight"},
    {"bare", "", ".lora_A", ".lora_B"},
    {"old_diffusers", "transformer.", ".lora.down.weight", ".lora.up.weight"},
    {"down_up", "diffusion_model.", ".lora_down.weight", ".lora_up.weight", false, 1.0F},
    {"kohya", "lora_unet_", ".lora_down.weight", ".lora_up.weight", true, 1.0F},
    {"kohya_transformer", "lora_transformer_", ".lora_down.weight", ".lora_up.weight", true, 4.0F},
};

TEST(KleinAdapter, EverySpellingAddsTheSame) {
  const LoraTargets targets = klein::lora_targets(kTiny);
  const auto rows = rows_of(targets);
  const std::pair<const char*, std::vector<Pair>> forms[] = {
      {"checkpoint", tiny_adapter()},
      {"original", original_release()},
      {"mflux", mflux()},
      {"fused", with_fused_attention(tiny_adapter(), "transformer_blocks.0.attn.to_qkv",
                                     "transformer_blocks.0.attn.to_added_qkv")},
      {"split", split_single_block("single_transformer_blocks.0.proj_mlp")},
      {"split_in_attention", split_single_block("single_transformer_blocks.0.attn.proj_mlp")},
  };
  // The reference: B A of each module, by hand.
  std::map<std::string, std::vector<double>> reference;
  for (const Pair& pair : tiny_adapter()) {
    std::vector<double>& sum = reference[pair.module];
    for (int64_t row = 0; row < pair.b.rows; ++row) {
      for (int64_t col = 0; col < pair.a.cols; ++col) {
        double value = 0;
        for (int64_t r = 0; r < kRank; ++r) {
          value += double{pair.b.values[row * kRank + r]} * pair.a.values[r * pair.a.cols + col];
        }
        sum.push_back(value);
      }
    }
  }
  for (const auto& [form, pairs] : forms) {
    for (const Spelling& spelling : kSpellings) {
      SCOPED_TRACE(std::string(form) + " as " + spelling.name);
      AdapterFile file;
      for (const Pair& pair : pairs) {
        std::string module = pair.module;
        if (spelling.flat) std::ranges::replace(module, '.', '_');
        module = spelling.prefix + module;
        file.matrix(module + spelling.down, pair.a).matrix(module + spelling.up, pair.b);
        if (spelling.alpha) file.floats(module + ".alpha", {}, {*spelling.alpha});
      }
      const Adapter adapter = read_adapter(file.write(), targets);
      EXPECT_EQ(adapter.applied, static_cast<int64_t>(pairs.size()));
      EXPECT_EQ(adapter.total, adapter.applied);
      auto expected = reference;
      for (auto& [module, values] : expected) {
        for (double& value : values) value *= spelling.alpha.value_or(kRank) / kRank;
      }
      expect_near(dense(adapter, rows), expected);
    }
  }
}

TEST(KleinAdapter, SplitAndFusedOfOneFileAddUp) {
  const LoraTargets targets = klein::lora_targets(kTiny);
  AdapterFile file;
  const Matrix a = Matrix::made(1, 8, 1);
  file.pair("single_transformer_blocks.0.attn.to_k", a, Matrix::made(8, 1, 2))
      .pair("diffusion_model.single_blocks.0.linear1", a, Matrix::made(48, 1, 3));
  const Adapter adapter = read_adapter(file.write(), targets);
  EXPECT_EQ(adapter.applied, 2);
  EXPECT_EQ(adapter.deltas.at("single_transformer_blocks.0.attn.to_qkv_mlp_proj").size(), 2U);
}

TEST(KleinAdapter, AnAdapterOfAnotherFamilyIsNamed) {
  const LoraTargets targets = klein::lora_targets(kTiny);
  const Matrix a = Matrix::made(1, 8, 1);
  const Matrix b = Matrix::made(8, 1, 2);
  const std::pair<std::string, std::string> modules[] = {
      {"lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q",
       "Stable Diffusion 1/2/XL"},
      {"diffusion_model.layers.0.attention.to_q", "Z-Image"},
      {"transformer.transformer_blocks.0.img_mod.1", "Qwen-Image"},
      {"diffusion_model.blocks.0.self_attn.q", "Wan"},
      {"lora_unet_double_blocks_0_img_mod_lin", "FLUX.1"},
  };
  for (const auto& [module, family] : modules) {
    const fs::path path = AdapterFile().pair(module, a, b).write();
    const std::string message = message_of<UsageError>([&] { read_adapter(path, targets); });
    EXPECT_EQ(message, path.string() +
                           ": none of its 1 modules belongs to FLUX.2 Klein; this is an "
                           "adapter for " +
                           family + "; unmatched: \"" + module +
                           "\" (use an adapter made for FLUX.2 Klein)");
  }
}

// FLUX.1 and Klein 4B have the same width, and some modules the same names.
TEST(KleinAdapter, AFlux1AdapterIsNotAppliedInPart) {
  const LoraTargets targets = klein::lora_targets(kTiny);
  const Matrix a = Matrix::made(1, 8, 1);
  const Matrix b = Matrix::made(8, 1, 2);
  AdapterFile with_modulation;
  with_modulation.pair("transformer.transformer_blocks.0.attn.to_q", a, b)
      .pair("transformer.transformer_blocks.0.norm1.linear", a, b);
  AdapterFile attention_only;
  for (int block = 0; block < 19; ++block) {
    attention_only.pair("transformer.transformer_blocks." + std::to_string(block) + ".attn.to_q", a,
                        b);
  }
  for (const AdapterFile& file : {with_modulation, attention_only}) {
    const fs::path path = file.write();
    const std::string message = message_of<UsageError>([&] { read_adapter(path, targets); });
    EXPECT_NE(message.find("this is an adapter for FLUX.1, not for FLUX.2 Klein"),
              std::string::npos)
        << message;
  }
}

TEST(KleinAdapter, ALargerKleinIsNotTakenForAnotherFamily) {
  const LoraTargets targets = klein::lora_targets(kTiny);
  const Matrix a = Matrix::made(1, 8, 1);
  const Matrix b = Matrix::made(8, 1, 2);
  const AdapterFile file = AdapterFile()
                               .pair("transformer.transformer_blocks.0.attn.to_q", a, b)
                               .pair("transformer.transformer_blocks.7.attn.to_q", a, b)
                               .pair("text_encoder.layers.0.self_attn.q_proj", a, b);
  const Adapter adapter = read_adapter(file.write(), targets);
  EXPECT_EQ(adapter.applied, 1);
  EXPECT_EQ(adapter.total, 3);
}

}  // namespace
}  // namespace mere::test
