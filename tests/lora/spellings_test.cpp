#include "lora/spellings.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace mere::lora {
namespace {

TEST(Spellings, FindsModuleAndPart) {
  const std::pair<std::string, Part> suffixes[] = {
      {".lora_A.weight", Part::kDown},
      {".lora_B.weight", Part::kUp},
      {".lora_A.default.weight", Part::kDown},
      {".lora_B.default.weight", Part::kUp},
      {".lora_A.default_0.weight", Part::kDown},
      {".lora_A", Part::kDown},
      {".lora_B", Part::kUp},
      {".lora_A.default", Part::kDown},
      {".lora_down.weight", Part::kDown},
      {".lora_up.weight", Part::kUp},
      {".lora.down.weight", Part::kDown},
      {".lora.up.weight", Part::kUp},
      {"_lora.down.weight", Part::kDown},
      {".lora_linear_layer.up.weight", Part::kUp},
      {".alpha", Part::kAlpha},
  };
  for (const auto& [suffix, part] : suffixes) {
    const std::string name = "transformer.blocks.0.to_q" + suffix;
    const auto key = parse_key(name);
    ASSERT_TRUE(key) << name;
    EXPECT_EQ(key->module, "transformer.blocks.0.to_q") << name;
    EXPECT_EQ(key->part, part) << name;
  }
}

TEST(Spellings, OtherNamesAreNoPart) {
  for (const char* name : {"", "alpha", ".alpha", "lora_A.weight", ".lora_A.weight", "x.weight",
                           "x.lora_A.bias", "x.lora_A.a.b.weight", "x.lora_A..weight",
                           "x.lora_Aweight", "x.lora_C.weight", "x.lora_A.weight.scales"}) {
    EXPECT_FALSE(parse_key(name)) << name;
  }
}

TEST(Spellings, StripsPrefixesInAnyOrder) {
  const auto has = [](std::string_view name, std::string_view form) {
    const auto forms = without_prefixes(name);
    return std::ranges::find(forms, form) != forms.end();
  };
  EXPECT_TRUE(has("x.y", "x.y"));
  EXPECT_TRUE(has("transformer.x.y", "x.y"));
  EXPECT_TRUE(has("diffusion_model.x.y", "x.y"));
  EXPECT_TRUE(has("model.diffusion_model.x.y", "x.y"));
  EXPECT_TRUE(has("base_model.model.x.y", "x.y"));
  EXPECT_TRUE(has("base_model.model.transformer.x.y", "x.y"));
  EXPECT_TRUE(has("lora_unet_x_y", "x_y"));
  EXPECT_TRUE(has("lora_transformer_x_y", "x_y"));
  EXPECT_TRUE(has("lora_transformer_blocks_0_x", "transformer_blocks_0_x"));
  EXPECT_TRUE(has("lycoris_x_y", "x_y"));
  EXPECT_FALSE(has("transformer_blocks.0.x", "blocks.0.x"));
}

TEST(Spellings, NamesFamiliesByTheirMarks) {
  const std::pair<std::string, std::string> marks[] = {
      {"transformer.transformer_blocks.0.norm1.linear", "FLUX.1"},
      {"transformer.transformer_blocks.3.ff.net.0.proj", "FLUX.1"},
      {"transformer.transformer_blocks.18.attn.to_q", "FLUX.1"},
      {"transformer.single_transformer_blocks.0.proj_mlp", "FLUX.1"},
      {"diffusion_model.double_blocks.2.img_mod.lin", "FLUX.1"},
      {"lora_unet_double_blocks_2_img_mod_lin", "FLUX.1"},
      {"lora_unet_double_blocks_18_img_attn_qkv", "FLUX.1"},
      {"lora_unet_single_blocks_3_modulation_lin", "FLUX.1"},
      {"lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q",
       "Stable Diffusion 1/2/XL"},
      {"lora_unet_down_blocks_2_attentions_0_transformer_blocks_9_attn1_to_q", "SDXL"},
      {"lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q", "Stable Diffusion 1/2/XL"},
      {"unet.up_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k", "Stable Diffusion 1/2/XL"},
      {"diffusion_model.layers.0.attention.to_q", "Z-Image"},
      {"diffusion_model.layers.0.adaLN_modulation.0", "Z-Image"},
      {"transformer.noise_refiner.0.attention.to_q", "Z-Image"},
      {"transformer.transformer_blocks.0.img_mod.1", "Qwen-Image"},
      {"transformer.transformer_blocks.0.txt_mlp.net.2", "Qwen-Image"},
      {"transformer.transformer_blocks.59.attn.to_q", "Qwen-Image"},
      {"diffusion_model.blocks.0.self_attn.q", "Wan"},
      {"lora_unet_blocks_0_cross_attn_k", "Wan"},
      {"transformer.transformer_blocks.0.attn1.to_q", "LTX-Video"},
      {"base_model.model.model.layers.0.self_attn.q_proj", "language model"},
      {"transformer.single_transformer_blocks.0.attn.to_qkv_mlp_proj", "FLUX.2"},
      {"diffusion_model.double_stream_modulation_img.lin", "FLUX.2"},
      {"diffusion_model.double_blocks.0.img_attn.qkv", "FLUX"},
      {"something.else", ""},
      {"lora_te_text_model_encoder_layers_0_self_attn_q_proj", ""},
      {"text_encoder.model.layers.0.self_attn.q_proj", ""},
  };
  for (const auto& [module, family] : marks) {
    EXPECT_EQ(guess_family({"x", module}, "Toy", false), family) << module;
  }
  EXPECT_EQ(
      guess_family({"diffusion_model.double_stream_modulation_img.lin"}, "FLUX.2 Klein", false),
      "");
  EXPECT_EQ(guess_family({"diffusion_model.layers.0.attention.to_q"}, "FLUX.2 Klein", true), "");
}

TEST(Spellings, NumbersThatAreNoIndexDoNotMatch) {
  for (const char* module :
       {"transformer_blocks.x.norm1.linear", "transformer_blocks.-1.norm1.linear",
        "transformer_blocks.99999999999999999999.norm1.linear",
        "transformer_blocks..norm1.linear"}) {
    EXPECT_EQ(guess_family({module}, "Toy", false), "") << module;
  }
}

}  // namespace
}  // namespace mere::lora
