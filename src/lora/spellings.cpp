#include "lora/spellings.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace mere::lora {
namespace {

struct MarkerRow {
  std::string_view text;
  Part part;
};

// What stands between the module and the optional adapter name and ".weight".
constexpr MarkerRow kMarkers[] = {
    {".lora_A", Part::kDown},
    {".lora_B", Part::kUp},
    {".lora_down", Part::kDown},
    {".lora_up", Part::kUp},
    {".lora.down", Part::kDown},
    {".lora.up", Part::kUp},
    {"_lora.down", Part::kDown},
    {"_lora.up", Part::kUp},
    {".lora_linear_layer.down", Part::kDown},
    {".lora_linear_layer.up", Part::kUp},
};
constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kAlpha = ".alpha";

// In any order and any depth ("base_model.model.transformer.").
constexpr std::string_view kPrefixes[] = {
    "base_model.model.", "model.", "diffusion_model.",  "transformer.", "unet.",
    "lora_unet_",        "lora_",  "lora_transformer_", "lycoris_",
};
constexpr size_t kMaxPrefixes = 3;

constexpr std::string_view kTextEncoderPrefixes[] = {
    "lora_te", "text_encoder", "text_model", "te.", "te1.", "te2.",
};

struct KindRow {
  std::string_view text;
  bool at_end;  // else anywhere
  std::string_view kind;
};

constexpr KindRow kUnsupportedKinds[] = {
    {".lokr_", false, "LoKr"},
    {".hada_", false, "LoHa"},
    {".dora_scale", false, "DoRA"},
    {".lora_magnitude_vector", false, "DoRA"},
    {".oft_", false, "OFT"},
    {".boft_", false, "BOFT"},
    {".ia3_", false, "IA3"},
    {".glora_", false, "GLoRA"},
    {".lora_mid", false, "LoCon (three factors)"},
    {".lora_B.bias", true, "LoRA with biases"},
    {".lora_B.default.bias", true, "LoRA with biases"},
    {".diff", true, "full weight difference (.diff)"},
    {".diff_b", true, "full bias difference (.diff_b)"},
    {".w_norm", true, "norm difference (.w_norm)"},
    {".b_norm", true, "norm difference (.b_norm)"},
};

struct FamilyRow {
  // Start of a flat module name without prefixes; '#' stands for a number.
  std::string_view pattern;
  int64_t min_index;  // least value of the last '#'
  std::string_view family;
  bool shares_names;  // with FLUX.2
};

// Earlier rows win: names of one family may begin like those of another with fewer blocks.
constexpr FamilyRow kFamilies[] = {
    {"down_blocks_#_attentions_#_transformer_blocks_#", 1, "SDXL", false},
    {"input_blocks_#_#_transformer_blocks_#", 1, "SDXL", false},
    {"down_blocks_", 0, "Stable Diffusion 1/2/XL", false},
    {"up_blocks_", 0, "Stable Diffusion 1/2/XL", false},
    {"mid_block_", 0, "Stable Diffusion 1/2/XL", false},
    {"input_blocks_", 0, "Stable Diffusion 1/2/XL", false},
    {"output_blocks_", 0, "Stable Diffusion 1/2/XL", false},
    {"middle_block_", 0, "Stable Diffusion 1/2/XL", false},
    {"joint_blocks_#", 0, "Stable Diffusion 3", false},
    {"noise_refiner_#", 0, "Z-Image", false},
    {"context_refiner_#", 0, "Z-Image", false},
    {"layers_#_attention_", 0, "Z-Image", false},
    {"layers_#_feed_forward_", 0, "Z-Image", false},
    {"layers_#_adaLN_modulation", 0, "Z-Image", false},
    {"layers_#_self_attn_", 0, "language model", false},
    {"transformer_blocks_#_img_mod_1", 0, "Qwen-Image", true},
    {"transformer_blocks_#_txt_mod_1", 0, "Qwen-Image", true},
    {"transformer_blocks_#_img_mlp_", 0, "Qwen-Image", true},
    {"transformer_blocks_#_txt_mlp_", 0, "Qwen-Image", true},
    {"transformer_blocks_#_attn_add_", 19, "Qwen-Image", true},
    {"transformer_blocks_#_attn_to_", 19, "Qwen-Image", true},
    {"transformer_blocks_#_attn1_", 0, "LTX-Video", false},
    {"transformer_blocks_#_attn2_", 0, "LTX-Video", false},
    {"blocks_#_self_attn_", 0, "Wan", false},
    {"blocks_#_cross_attn_", 0, "Wan", false},
    {"blocks_#_attn1_", 0, "Wan", false},
    {"blocks_#_attn2_", 0, "Wan", false},
    {"distilled_guidance_layer", 0, "Chroma", true},
    {"double_blocks_#_img_mod_linear", 0, "HunyuanVideo", true},
    {"double_blocks_#_img_attn_qkv", 19, "HunyuanVideo", true},
    {"double_blocks_#_img_mod_lin", 0, "FLUX.1", true},
    {"double_blocks_#_txt_mod_lin", 0, "FLUX.1", true},
    {"single_blocks_#_modulation_lin", 0, "FLUX.1", true},
    {"transformer_blocks_#_norm1_linear", 0, "FLUX.1", true},
    {"transformer_blocks_#_norm1_context_linear", 0, "FLUX.1", true},
    {"transformer_blocks_#_ff_net_", 0, "FLUX.1", true},
    {"transformer_blocks_#_ff_context_net_", 0, "FLUX.1", true},
    {"single_transformer_blocks_#_norm_linear", 0, "FLUX.1", true},
    {"single_transformer_blocks_#_proj_mlp", 0, "FLUX.1", true},
    {"single_transformer_blocks_#_proj_out", 0, "FLUX.1", true},
    {"single_transformer_blocks_#_attn_to_q", 24, "FLUX.1", true},
    {"time_text_embed_", 0, "FLUX.1", true},
    {"vector_in_", 0, "FLUX.1", true},
    // FLUX.2 models have at most 8 double blocks, FLUX.1 has 19.
    {"double_blocks_#_", 8, "FLUX.1", true},
    {"transformer_blocks_#_attn_", 8, "FLUX.1", true},
    {"double_stream_modulation_", 0, "FLUX.2", false},
    {"single_stream_modulation_", 0, "FLUX.2", false},
    {"single_transformer_blocks_#_attn_to_qkv_mlp_proj", 0, "FLUX.2", false},
    {"transformer_blocks_#_ff_linear_", 0, "FLUX.2", false},
    {"transformer_blocks_#_ff_context_linear_", 0, "FLUX.2", false},
    {"transformer_blocks_#_attn_", 0, "FLUX", false},
    {"single_transformer_blocks_#_", 0, "FLUX", false},
    {"double_blocks_#_", 0, "FLUX", false},
    {"single_blocks_#_", 0, "FLUX", false},
};

// "" or ".weight", with one adapter name in front or not: ".default.weight".
bool is_weight_tail(std::string_view tail) {
  if (tail.empty() || tail == kWeight || tail == ".default") return true;
  if (!tail.ends_with(kWeight) || tail.front() != '.') return false;
  const std::string_view adapter = tail.substr(1, tail.size() - 1 - kWeight.size());
  return !adapter.empty() && adapter.find('.') == std::string_view::npos;
}

bool starts_like(std::string_view name, const FamilyRow& row) {
  int64_t index = row.min_index;
  for (const char expected : row.pattern) {
    if (expected != '#') {
      if (!name.starts_with(expected)) return false;
      name.remove_prefix(1);
      continue;
    }
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (error != std::errc{} || index < 0) return false;
    name.remove_prefix(static_cast<size_t>(end - name.data()));
  }
  return index >= row.min_index;
}

void add_forms(std::string_view name, size_t prefixes_left, std::vector<std::string_view>& forms) {
  forms.push_back(name);
  if (prefixes_left == 0) return;
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) add_forms(name.substr(prefix.size()), prefixes_left - 1, forms);
  }
}

}  // namespace

std::optional<Key> parse_key(std::string_view tensor_name) {
  if (tensor_name.size() > kAlpha.size() && tensor_name.ends_with(kAlpha)) {
    return Key{tensor_name.substr(0, tensor_name.size() - kAlpha.size()), Part::kAlpha};
  }
  for (const MarkerRow& marker : kMarkers) {
    const size_t at = tensor_name.rfind(marker.text);
    if (at == std::string_view::npos || at == 0) continue;
    if (!is_weight_tail(tensor_name.substr(at + marker.text.size()))) continue;
    return Key{tensor_name.substr(0, at), marker.part};
  }
  return std::nullopt;
}

std::string_view unsupported_kind(std::string_view tensor_name) {
  for (const KindRow& row : kUnsupportedKinds) {
    const bool found = row.at_end ? tensor_name.ends_with(row.text)
                                  : tensor_name.find(row.text) != std::string_view::npos;
    if (found) return row.kind;
  }
  return {};
}

std::vector<std::string_view> without_prefixes(std::string_view module) {
  std::vector<std::string_view> forms;
  add_forms(module, kMaxPrefixes, forms);
  std::ranges::stable_sort(forms, std::ranges::greater{}, &std::string_view::size);
  return forms;
}

std::string flat_name(std::string_view name) {
  std::string flat(name);
  std::ranges::replace(flat, '.', '_');
  return flat;
}

bool is_text_encoder(std::string_view module) {
  return std::ranges::any_of(kTextEncoderPrefixes,
                             [&](std::string_view prefix) { return module.starts_with(prefix); });
}

std::string_view guess_family(const std::vector<std::string>& modules, std::string_view own,
                              bool sharing_names_only) {
  std::vector<std::string> names;
  for (const std::string& module : modules) {
    if (is_text_encoder(module)) continue;
    for (const std::string_view form : without_prefixes(module)) names.push_back(flat_name(form));
  }
  for (const FamilyRow& row : kFamilies) {
    if (own.starts_with(row.family) || (sharing_names_only && !row.shares_names)) continue;
    const auto bears_mark = [&](const std::string& name) { return starts_like(name, row); };
    if (std::ranges::any_of(names, bears_mark)) return row.family;
  }
  return {};
}

}  // namespace mere::lora
