#include "nn/qwen3.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace mere {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;

void refuse(const std::string& source, const std::string& what) {
  throw IoError{{"config_unsupported", source, source + ": " + what, ""}};
}

// Both spellings of the kind of rotation; only the plain one is done here.
void check_rotation(const Json& settings, const std::string& source) {
  for (const char* key : {"rope_type", "type"}) {
    if (json_string_or(settings, key, "default", source) == "default") continue;
    refuse(source, std::string(key) + " of the rotation is not \"default\"");
  }
  if (settings.contains("factor") && json_number_or(settings, "factor", 0, 1e9, 1, source) != 1) {
    refuse(source, "rope_scaling is not supported");
  }
}

// cos and sin [L, D/2] of position * theta^(-2i/D), in the float32 order of the reference.
std::pair<Array, Array> rotation_tables(int64_t tokens, int64_t head_dim, double theta) {
  const int64_t half = head_dim / 2;
  std::vector<float> cos;
  std::vector<float> sin;
  for (int64_t position = 0; position < tokens; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const auto exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
      const float frequency = 1.0F / std::pow(static_cast<float>(theta), exponent);
      const float angle = static_cast<float>(position) * frequency;
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
  }
  const mx::Shape shape = {static_cast<int>(tokens), static_cast<int>(half)};
  return {array_from(cos, shape), array_from(sin, shape)};
}

}  // namespace

Qwen3Config Qwen3Config::read(const fs::path& config_json) {
  const std::string source = config_json.string();
  const Json json = parse_json_file(config_json);
  Qwen3Config c;
  c.hidden_size = json_int(json, "hidden_size", 1, kMaxWidth, source);
  c.intermediate_size = json_int(json, "intermediate_size", 1, kMaxWidth, source);
  c.num_hidden_layers = json_int(json, "num_hidden_layers", 1, 1024, source);
  c.num_attention_heads = json_int(json, "num_attention_heads", 1, 1024, source);
  // Absent fields take the reference's defaults, which are those of no published size.
  c.num_key_value_heads = json_int_or(json, "num_key_value_heads", 1, 1024, 32, source);
  c.head_dim = json_int_or(json, "head_dim", 2, 1024, 128, source);
  c.vocab_size = json_int(json, "vocab_size", 1, 1 << 24, source);
  c.rms_norm_eps = static_cast<float>(json_number_or(json, "rms_norm_eps", 0, 1, 1e-6, source));
  c.attention_bias = json_bool_or(json, "attention_bias", false, source);
  // Newer files keep the rotation's settings in an object of their own.
  const auto nested = json.find("rope_parameters");
  const Json& rope = nested != json.end() && nested->is_object() ? *nested : json;
  c.rope_theta = json_number_or(rope, "rope_theta", 1, 1e12, 10000, source);

  if (json_string_or(json, "hidden_act", "silu", source) != "silu")
    refuse(source, "hidden_act is not silu");
  check_rotation(rope, source);
  const auto scaling = json.find("rope_scaling");
  if (scaling != json.end() && !scaling->is_null()) check_rotation(*scaling, source);
  if (json_bool_or(json, "use_sliding_window", false, source)) {
    refuse(source, "use_sliding_window is not supported");
  }
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    refuse(source, "num_attention_heads is not a multiple of num_key_value_heads");
  }
  if (c.head_dim % 2 != 0) refuse(source, "head_dim is odd");
  return c;
}

std::string qwen3_checkpoint_name(const std::string& stored_name) {
  for (const char* prefix : {"layers.", "embed_tokens.", "norm."}) {
    if (stored_name.starts_with(prefix)) return "model." + stored_name;
  }
  return stored_name;
}

Qwen3::Layer Qwen3::read_layer(const Qwen3Config& c, const Weights& weights, int64_t index) {
  const std::string name = "model.layers." + std::to_string(index) + ".";
  const std::string attn = name + "self_attn.";
  const std::string mlp = name + "mlp.";
  const int64_t q_width = c.num_attention_heads * c.head_dim;
  const int64_t kv_width = c.num_key_value_heads * c.head_dim;
  const bool bias = c.attention_bias;
  return {
      weights.get_f32(name + "input_layernorm.weight", {c.hidden_size}),
      Linear(weights, attn + "q_proj", q_width, c.hidden_size, bias),
      Linear(weights, attn + "k_proj", kv_width, c.hidden_size, bias),
      Linear(weights, attn + "v_proj", kv_width, c.hidden_size, bias),
      Linear(weights, attn + "o_proj", c.hidden_size, q_width, bias),
      weights.get_f32(attn + "q_norm.weight", {c.head_dim}),
      weights.get_f32(attn + "k_norm.weight", {c.head_dim}),
      weights.get_f32(name + "post_attention_layernorm.weight", {c.hidden_size}),
      Linear(weights, mlp + "gate_proj", c.intermediate_size, c.hidden_size),
      Linear(weights, mlp + "up_proj", c.intermediate_size, c.hidden_size),
      Linear(weights, mlp + "down_proj", c.hidden_size, c.intermediate_size),
  };
}

Qwen3::Qwen3(const Qwen3Config& config, const Weights& weights, int64_t layers)
    : config_(config),
      embed_tokens_(weights, "model.embed_tokens", config.vocab_size, config.hidden_size) {
  for (int64_t i = 0; i < std::min(layers, config.num_hidden_layers); ++i) {
    layers_.push_back(read_layer(config, weights, i));
  }
  if (layers >= config.num_hidden_layers && weights.has("model.norm.weight")) {
    norm_ = weights.get_f32("model.norm.weight", {config.hidden_size});
  }
}

Array Qwen3::attention_of(const Layer& layer, const Array& x, const Array& cos, const Array& sin,
                          const Array& valid) const {
  const int batch = x.shape(0);
  const int tokens = x.shape(1);
  const auto heads = [&](const Array& y, int64_t count) {
    return mx::reshape(
        y, {batch, tokens, static_cast<int>(count), static_cast<int>(config_.head_dim)});
  };
  const auto by_head = [](const Array& y) { return mx::transpose(y, {0, 2, 1, 3}); };
  const Array q = rms_norm(heads(layer.q_proj(x), config_.num_attention_heads), layer.q_norm,
                           config_.rms_norm_eps);  // [B, L, H, D]
  const Array k = rms_norm(heads(layer.k_proj(x), config_.num_key_value_heads), layer.k_norm,
                           config_.rms_norm_eps);
  const Array v = heads(layer.v_proj(x), config_.num_key_value_heads);
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
  const Array y = attention(rope(by_head(q), cos, sin, RopePairs::kHalves),
                            rope(by_head(k), cos, sin, RopePairs::kHalves), by_head(v), scale,
                            {.causal = true, .valid_keys = valid});  // [B, H, L, D]
  return layer.o_proj(mx::reshape(by_head(y), {batch, tokens, -1}));
}

std::map<int64_t, Array> Qwen3::hidden_states(const Array& ids, const Array& valid,
                                              const std::vector<int64_t>& states,
                                              Progress* progress) const {
  const int64_t last = *std::ranges::max_element(states);
  if (last > static_cast<int64_t>(layers_.size())) {
    throw InternalError{
        {"layer_missing", "", "a hidden state beyond the layers read was asked for", ""}};
  }
  if (last == config_.num_hidden_layers && !norm_) {
    throw IoError{{"weights_missing", "model.norm.weight",
                   "the text encoder's last state needs model.norm.weight, which is missing", ""}};
  }
  const auto [cos, sin] = rotation_tables(ids.shape(1), config_.head_dim, config_.rope_theta);
  std::map<int64_t, Array> kept;
  const auto keep = [&](int64_t state, const Array& x) {
    if (std::ranges::find(states, state) != states.end()) kept.emplace(state, x);
  };
  if (progress != nullptr) progress->report(Stage::kEncodingText, 0, last);
  Array x = embed_tokens_(ids);  // [B, L, hidden]
  keep(0, x);
  for (int64_t i = 0; i < last; ++i) {
    const Layer& layer = layers_[i];
    x = x + attention_of(layer, rms_norm(x, layer.input_layernorm, config_.rms_norm_eps), cos, sin,
                         valid);
    const Array h = rms_norm(x, layer.post_attention_layernorm, config_.rms_norm_eps);
    x = x + layer.down_proj(silu(layer.gate_proj(h)) * layer.up_proj(h));
    const bool is_last_state = i + 1 == config_.num_hidden_layers;
    keep(i + 1, is_last_state ? rms_norm(x, norm_.value(), config_.rms_norm_eps) : x);
    // Evaluating layer by layer keeps one layer's buffers alive instead of all, and lets a
    // cancelled request end here.
    mx::eval(x);
    if (progress != nullptr) progress->report(Stage::kEncodingText, i + 1, last);
  }
  return kept;
}

}  // namespace mere
