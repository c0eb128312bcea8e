#include "families/klein/config.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/json.h"

namespace mere::klein {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw IoError{{"config_unsupported", source, source + ": " + what, ""}};
}

// model_index.json says it; a manifest's variant says it where the index is silent. Without either
// the reference takes guidance to be wanted.
bool read_is_distilled(const ModelRoot& root) {
  const fs::path index = root.path / "model_index.json";
  if (fs::exists(index)) {
    const Json json = parse_json_file(index);
    const auto value = json.find("is_distilled");
    if (value != json.end() && value->is_boolean()) return value->get<bool>();
  }
  return root.manifest.variant == "distilled";
}

void check_fit(const Config& c, const std::string& source) {
  if (c.transformer.in_channels != c.vae.packed_channels()) {
    refuse(source, "the transformer takes " + std::to_string(c.transformer.in_channels) +
                       " channels, but the autoencoder packs " +
                       std::to_string(c.vae.packed_channels()));
  }
  if (c.transformer.out_channels != c.transformer.in_channels) {
    refuse(source, "the transformer's output is not a latent");
  }
  if (c.vae.downsampling() != 8) refuse(source, "the autoencoder does not downsample by 8");
}

}  // namespace

TransformerShape TransformerConfig::shape() const {
  return {.double_blocks = num_layers,
          .single_blocks = num_single_layers,
          .hidden = hidden(),
          .mlp_hidden = mlp_hidden(),
          .in_channels = in_channels,
          .out_channels = out_channels,
          .context_dim = joint_attention_dim,
          .timestep_channels = timestep_guidance_channels,
          .guidance_embeds = guidance_embeds};
}

TransformerConfig TransformerConfig::read(const fs::path& config_json) {
  const std::string source = config_json.string();
  const Json json = parse_json_file(config_json);
  TransformerConfig c;
  c.in_channels = json_int_or(json, "in_channels", 1, kMaxWidth, 128, source);
  c.out_channels = json_int_or(json, "out_channels", 1, kMaxWidth, c.in_channels, source);
  c.num_layers = json_int(json, "num_layers", 0, 1024, source);
  c.num_single_layers = json_int(json, "num_single_layers", 0, 1024, source);
  c.attention_head_dim = json_int_or(json, "attention_head_dim", 2, 1024, 128, source);
  c.num_attention_heads = json_int(json, "num_attention_heads", 1, 1024, source);
  c.joint_attention_dim = json_int(json, "joint_attention_dim", 1, kMaxWidth, source);
  c.timestep_guidance_channels =
      json_int_or(json, "timestep_guidance_channels", 2, 1 << 16, 256, source);
  c.mlp_ratio = json_number_or(json, "mlp_ratio", 0.01, 64, 3.0, source);
  c.axes_dims_rope = json_ints(json, "axes_dims_rope", 2, 1024, source)
                         .value_or(std::vector<int64_t>{32, 32, 32, 32});
  c.rope_theta = json_number_or(json, "rope_theta", 1, 1e12, 2000, source);
  c.eps = static_cast<float>(json_number_or(json, "eps", 0, 1, 1e-6, source));
  c.guidance_embeds = json_bool_or(json, "guidance_embeds", false, source);
  if (json_int_or(json, "patch_size", 1, 64, 1, source) != 1) refuse(source, "patch_size is not 1");
  if (c.axes_dims_rope.size() != 4) refuse(source, "axes_dims_rope does not have 4 axes");
  const int64_t sum = std::accumulate(c.axes_dims_rope.begin(), c.axes_dims_rope.end(), int64_t{0});
  if (sum != c.attention_head_dim)
    refuse(source, "axes_dims_rope does not add up to attention_head_dim");
  if (std::ranges::any_of(c.axes_dims_rope, [](int64_t dim) { return dim % 2 != 0; })) {
    refuse(source, "axes_dims_rope holds an odd number");
  }
  if (c.hidden() > kMaxWidth) refuse(source, "the transformer is too wide");
  if (c.timestep_guidance_channels % 2 != 0) refuse(source, "timestep_guidance_channels is odd");
  return c;
}

Config Config::read(const ModelRoot& root) {
  Config c;
  c.transformer = TransformerConfig::read(root.component("transformer") / "config.json");
  c.vae = AutoencoderKlFlux2Config::read(root.component("vae") / "config.json");
  c.text_encoder = Qwen3Config::read(root.component("text_encoder") / "config.json");
  c.text_encoder_out_layers =
      root.manifest.text_encoder_out_layers.value_or(std::vector<int64_t>{9, 18, 27});
  c.is_distilled = read_is_distilled(root);
  check_fit(c, root.path.string());
  return c;
}

void Config::check_text_fits(const ModelRoot& root) const {
  const std::string source = root.path.string();
  if (text_encoder_out_layers.empty()) refuse(source, "text_encoder_out_layers is empty");
  const int64_t last = *std::ranges::max_element(text_encoder_out_layers);
  if (last > text_encoder.num_hidden_layers) {
    refuse(source, "hidden state " + std::to_string(last) + " is asked of a text encoder with " +
                       std::to_string(text_encoder.num_hidden_layers) + " layers");
  }
  const auto states = static_cast<int64_t>(text_encoder_out_layers.size());
  if (transformer.joint_attention_dim != states * text_encoder.hidden_size) {
    refuse(source, "the transformer takes text of width " +
                       std::to_string(transformer.joint_attention_dim) +
                       ", but the text encoder gives " + std::to_string(states) + " x " +
                       std::to_string(text_encoder.hidden_size));
  }
}

}  // namespace mere::klein
