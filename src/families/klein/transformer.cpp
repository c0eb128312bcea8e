#include "families/klein/transformer.h"

#include <array>
#include <cmath>

#include "core/error.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/concat.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "nn/timestep_embedding.h"

namespace mere::klein {
namespace {

std::string numbered(const char* prefix, int64_t index) {
  return std::string(prefix) + "." + std::to_string(index) + ".";
}

// Columns [begin, end) of the last axis, a view.
Array columns(const Array& x, int64_t begin, int64_t end) {
  mx::Shape start(x.ndim(), 0);
  mx::Shape stop = x.shape();
  start.back() = static_cast<int>(begin);
  stop.back() = static_cast<int>(end);
  return mx::slice(x, start, stop);
}

// Tokens [begin, end) of [B, L, ...].
Array tokens(const Array& x, int64_t begin, int64_t end) {
  mx::Shape start(x.ndim(), 0);
  mx::Shape stop = x.shape();
  start[1] = static_cast<int>(begin);
  stop[1] = static_cast<int>(end);
  return mx::slice(x, start, stop);
}

}  // namespace

PositionIds text_position_ids(int64_t count) {
  PositionIds ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back({0, 0, 0, i});
  return ids;
}

PositionIds image_position_ids(int64_t height, int64_t width, int64_t time) {
  PositionIds ids;
  for (int64_t h = 0; h < height; ++h) {
    for (int64_t w = 0; w < width; ++w) ids.push_back({time, h, w, 0});
  }
  return ids;
}

RotaryTables rotary_tables(const TransformerConfig& config, const PositionIds& ids) {
  std::vector<float> cos;
  std::vector<float> sin;
  for (const auto& position : ids) {
    for (size_t axis = 0; axis < config.axes_dims_rope.size(); ++axis) {
      const int64_t dim = config.axes_dims_rope[axis];
      for (int64_t i = 0; i < dim / 2; ++i) {
        const double exponent = static_cast<double>(2 * i) / static_cast<double>(dim);
        const double angle =
            static_cast<double>(position[axis]) / std::pow(config.rope_theta, exponent);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
  const mx::Shape shape = {static_cast<int>(ids.size()),
                           static_cast<int>(config.attention_head_dim / 2)};
  return {array_from(cos, shape), array_from(sin, shape)};
}

std::string transformer_checkpoint_name(const std::string& stored_name) {
  static constexpr std::string_view kTime = "time_guidance_embed.linear_";
  static constexpr std::string_view kDouble = "transformer_blocks.";
  static constexpr std::string_view kOut = ".attn.to_out.";
  if (stored_name.starts_with(kTime)) {
    return "time_guidance_embed.timestep_embedder.linear_" + stored_name.substr(kTime.size());
  }
  const size_t out = stored_name.find(kOut);
  if (stored_name.starts_with(kDouble) && out != std::string::npos) {
    const std::string rest = stored_name.substr(out + kOut.size());
    if (!rest.starts_with("0.")) return stored_name.substr(0, out + kOut.size()) + "0." + rest;
  }
  return stored_name;
}

// shift, scale and gate of one part of a block, each [B, 1, hidden].
struct Transformer::Modulation {
  Array chunks;  // [B, 1, k * hidden]
  int64_t hidden;

  Array chunk(int64_t index) const { return columns(chunks, index * hidden, (index + 1) * hidden); }
  Array shift(int64_t part) const { return chunk(3 * part); }
  Array scale(int64_t part) const { return chunk(3 * part + 1); }
  Array gate(int64_t part) const { return chunk(3 * part + 2); }
};

// Sinusoid [cos | sin] of value * 1000, then linear, SiLU, linear. [B, hidden].
Array Transformer::TimeEmbedder::operator()(std::span<const float> values, int64_t channels) const {
  std::vector<float> timesteps(values.begin(), values.end());
  for (float& timestep : timesteps) timestep *= 1000.0F;
  return linear_2(silu(linear_1(timestep_embedding(timesteps, channels))));
}

Transformer::DoubleBlock Transformer::read_double(const TransformerConfig& c, const Weights& w,
                                                  int64_t index) {
  const std::string name = numbered("transformer_blocks", index);
  const std::string attn = name + "attn.";
  const int64_t hidden = c.hidden();
  const int64_t mlp = c.mlp_hidden();
  const auto square = [&](const char* module) { return Linear(w, attn + module, hidden, hidden); };
  const auto norm = [&](const char* module) {
    return w.get_f32(attn + module + ".weight", {c.attention_head_dim});
  };
  return {square("to_q"),
          square("to_k"),
          square("to_v"),
          square("to_out.0"),
          square("add_q_proj"),
          square("add_k_proj"),
          square("add_v_proj"),
          square("to_add_out"),
          norm("norm_q"),
          norm("norm_k"),
          norm("norm_added_q"),
          norm("norm_added_k"),
          Linear(w, name + "ff.linear_in", 2 * mlp, hidden),
          Linear(w, name + "ff.linear_out", hidden, mlp),
          Linear(w, name + "ff_context.linear_in", 2 * mlp, hidden),
          Linear(w, name + "ff_context.linear_out", hidden, mlp)};
}

Transformer::SingleBlock Transformer::read_single(const TransformerConfig& c, const Weights& w,
                                                  int64_t index) {
  const std::string attn = numbered("single_transformer_blocks", index) + "attn.";
  const int64_t hidden = c.hidden();
  const int64_t mlp = c.mlp_hidden();
  return {Linear(w, attn + "to_qkv_mlp_proj", 3 * hidden + 2 * mlp, hidden),
          Linear(w, attn + "to_out", hidden, hidden + mlp),
          w.get_f32(attn + "norm_q.weight", {c.attention_head_dim}),
          w.get_f32(attn + "norm_k.weight", {c.attention_head_dim})};
}

Transformer::Transformer(const TransformerConfig& c, const Weights& w)
    : config_(c),
      x_embedder_(w, "x_embedder", c.hidden(), c.in_channels),
      context_embedder_(w, "context_embedder", c.hidden(), c.joint_attention_dim),
      timestep_embedder_{
          Linear(w, "time_guidance_embed.timestep_embedder.linear_1", c.hidden(),
                 c.timestep_guidance_channels),
          Linear(w, "time_guidance_embed.timestep_embedder.linear_2", c.hidden(), c.hidden())},
      double_stream_modulation_img_(w, "double_stream_modulation_img.linear", 6 * c.hidden(),
                                    c.hidden()),
      double_stream_modulation_txt_(w, "double_stream_modulation_txt.linear", 6 * c.hidden(),
                                    c.hidden()),
      single_stream_modulation_(w, "single_stream_modulation.linear", 3 * c.hidden(), c.hidden()),
      norm_out_(w, "norm_out.linear", 2 * c.hidden(), c.hidden()),
      proj_out_(w, "proj_out", c.out_channels, c.hidden()) {
  if (c.guidance_embeds) {
    guidance_embedder_.emplace(TimeEmbedder{
        Linear(w, "time_guidance_embed.guidance_embedder.linear_1", c.hidden(),
               c.timestep_guidance_channels),
        Linear(w, "time_guidance_embed.guidance_embedder.linear_2", c.hidden(), c.hidden())});
  }
  for (int64_t i = 0; i < c.num_layers; ++i) transformer_blocks_.push_back(read_double(c, w, i));
  for (int64_t i = 0; i < c.num_single_layers; ++i) {
    single_transformer_blocks_.push_back(read_single(c, w, i));
  }
}

// [B, L, hidden] -> [B, L, H, D]
Array Transformer::heads(const Array& x) const {
  return mx::reshape(x, {x.shape(0), x.shape(1), static_cast<int>(config_.num_attention_heads),
                         static_cast<int>(config_.attention_head_dim)});
}

// q [B, L, H, D] for the last L of the tokens, k and v for all, q and k normed -> [B, L, hidden]
Array Transformer::attend(const Array& q, const Array& k, const Array& v,
                          const RotaryTables& rotary) const {
  const auto by_head = [](const Array& x) { return mx::transpose(x, {0, 2, 1, 3}); };
  const auto rotate = [&](const Array& x) {
    const auto angles = [&](const Array& table) {
      return mx::slice(table, {table.shape(0) - x.shape(1), 0}, table.shape());
    };
    return rope(by_head(x), angles(rotary.cos), angles(rotary.sin), RopePairs::kAdjacent);
  };
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.attention_head_dim));
  const Array y = attention(rotate(q), rotate(k), by_head(v), scale);
  return mx::reshape(by_head(y), {q.shape(0), q.shape(1), -1});
}

void Transformer::run_double(const DoubleBlock& block, const Modulation& img_mod,
                             const Modulation& txt_mod, const RotaryTables& rotary, Array& img,
                             Array& txt) const {
  const float eps = config_.eps;
  const Array img_in = layer_norm_modulated(img, img_mod.scale(0), img_mod.shift(0), eps);
  const Array txt_in = layer_norm_modulated(txt, txt_mod.scale(0), txt_mod.shift(0), eps);
  const auto joint = [](const Array& text, const Array& image) { return concat({text, image}, 1); };
  const Array q = joint(rms_norm(heads(block.add_q_proj(txt_in)), block.norm_added_q, eps),
                        rms_norm(heads(block.to_q(img_in)), block.norm_q, eps));
  const Array k = joint(rms_norm(heads(block.add_k_proj(txt_in)), block.norm_added_k, eps),
                        rms_norm(heads(block.to_k(img_in)), block.norm_k, eps));
  const Array v = joint(heads(block.add_v_proj(txt_in)), heads(block.to_v(img_in)));
  const Array y = attend(q, k, v, rotary);  // [B, L + N, hidden]
  const int64_t text_tokens = txt.shape(1);
  img = block.to_out.gated_onto(img, img_mod.gate(0), {{tokens(y, text_tokens, y.shape(1))}});
  txt = block.to_add_out.gated_onto(txt, txt_mod.gate(0), {{tokens(y, 0, text_tokens)}});

  const Array img_ff = layer_norm_modulated(img, img_mod.scale(1), img_mod.shift(1), eps);
  const Array txt_ff = layer_norm_modulated(txt, txt_mod.scale(1), txt_mod.shift(1), eps);
  img = block.ff_out.gated_onto(img, img_mod.gate(1), {{block.ff_in(img_ff), true}});
  txt =
      block.ff_context_out.gated_onto(txt, txt_mod.gate(1), {{block.ff_context_in(txt_ff), true}});
}

Array Transformer::run_single(const SingleBlock& block, const Modulation& mod,
                              const RotaryTables& rotary, const Array& x,
                              int64_t first_token) const {
  const int64_t hidden = config_.hidden();
  const Array in = layer_norm_modulated(x, mod.scale(0), mod.shift(0), config_.eps);
  const auto attend_and_mix = [&](const Array& q, const Array& k, const Array& v, const Array& mlp,
                                  const Array& residual) {
    const Array y = attend(rms_norm(heads(q), block.norm_q, config_.eps),
                           rms_norm(heads(k), block.norm_k, config_.eps), heads(v), rotary);
    return block.to_out.gated_onto(residual, mod.gate(0), {{y}, {mlp, true}});
  };
  const Linear& proj = block.to_qkv_mlp_proj;
  if (first_token > 0 && !proj.has_adapters()) {
    const Array kv = proj.outputs(in, hidden, 3 * hidden);
    const Array last = tokens(in, first_token, in.shape(1));
    return attend_and_mix(
        proj.outputs(last, 0, hidden), columns(kv, 0, hidden), columns(kv, hidden, 2 * hidden),
        proj.outputs(last, 3 * hidden, proj.out()), tokens(x, first_token, x.shape(1)));
  }
  const Array qkv_mlp = proj(in);  // [B, L, 3 hidden + 2 mlp]
  const Array y = attend_and_mix(columns(qkv_mlp, 0, hidden), columns(qkv_mlp, hidden, 2 * hidden),
                                 columns(qkv_mlp, 2 * hidden, 3 * hidden),
                                 columns(qkv_mlp, 3 * hidden, qkv_mlp.shape(2)), x);
  return tokens(y, first_token, y.shape(1));
}

Array Transformer::operator()(const TransformerInput& input, const Progress* progress,
                              Taps* taps) const {
  const auto check = [&] {
    if (progress != nullptr) progress->check_cancelled();
  };
  Array temb = timestep_embedder_(input.sigma, config_.timestep_guidance_channels);  // [B, hidden]
  if (guidance_embedder_ && !input.guidance.empty()) {
    temb = temb + (*guidance_embedder_)(input.guidance, config_.timestep_guidance_channels);
  }
  tap(taps, "temb", temb);
  const Array active = mx::expand_dims(silu(temb), 1);  // [B, 1, hidden]
  const Modulation img_mod{double_stream_modulation_img_(active), config_.hidden()};
  const Modulation txt_mod{double_stream_modulation_txt_(active), config_.hidden()};
  const Modulation single_mod{single_stream_modulation_(active), config_.hidden()};
  tap(taps, "mod_double_img", mx::squeeze(img_mod.chunks, 1));
  tap(taps, "mod_double_txt", mx::squeeze(txt_mod.chunks, 1));
  tap(taps, "mod_single", mx::squeeze(single_mod.chunks, 1));

  Array img = x_embedder_(input.hidden_states);
  Array txt = context_embedder_(input.encoder_hidden_states);
  tap(taps, "x_embed", img);
  tap(taps, "context_embed", txt);
  for (size_t i = 0; i < transformer_blocks_.size(); ++i) {
    run_double(transformer_blocks_[i], img_mod, txt_mod, input.rotary, img, txt);
    tap(taps, "double" + std::to_string(i) + "_img", img);
    tap(taps, "double" + std::to_string(i) + "_txt", txt);
    mx::eval(img, txt);
    check();
  }
  Array x = concat({txt, img}, 1);  // [B, L + N, hidden]
  const int64_t text_tokens = txt.shape(1);
  for (size_t i = 0; i < single_transformer_blocks_.size(); ++i) {
    // The text is not read after the last block. Golden tests look at it there.
    const bool last = i + 1 == single_transformer_blocks_.size();
    const int64_t first_token = last && taps == nullptr ? text_tokens : 0;
    x = run_single(single_transformer_blocks_[i], single_mod, input.rotary, x, first_token);
    tap(taps, "single" + std::to_string(i) + "_joint", x);
    mx::eval(x);
    check();
  }
  img = tokens(x, x.shape(1) - img.shape(1), x.shape(1));
  const Array final_mod = norm_out_(active);  // [B, 1, 2 hidden]: scale, shift
  img =
      layer_norm_modulated(img, columns(final_mod, 0, config_.hidden()),
                           columns(final_mod, config_.hidden(), 2 * config_.hidden()), config_.eps);
  tap(taps, "norm_out", img);
  return proj_out_(img);
}

std::map<std::string, Linear*> Transformer::modules() {
  std::map<std::string, Linear*> table = {
      {"x_embedder", &x_embedder_},
      {"context_embedder", &context_embedder_},
      {"time_guidance_embed.timestep_embedder.linear_1", &timestep_embedder_.linear_1},
      {"time_guidance_embed.timestep_embedder.linear_2", &timestep_embedder_.linear_2},
      {"double_stream_modulation_img.linear", &double_stream_modulation_img_},
      {"double_stream_modulation_txt.linear", &double_stream_modulation_txt_},
      {"single_stream_modulation.linear", &single_stream_modulation_},
      {"norm_out.linear", &norm_out_},
      {"proj_out", &proj_out_},
  };
  if (guidance_embedder_) {
    table["time_guidance_embed.guidance_embedder.linear_1"] = &guidance_embedder_->linear_1;
    table["time_guidance_embed.guidance_embedder.linear_2"] = &guidance_embedder_->linear_2;
  }
  for (size_t i = 0; i < transformer_blocks_.size(); ++i) {
    DoubleBlock& block = transformer_blocks_[i];
    const std::string name = numbered("transformer_blocks", static_cast<int64_t>(i));
    table[name + "attn.to_q"] = &block.to_q;
    table[name + "attn.to_k"] = &block.to_k;
    table[name + "attn.to_v"] = &block.to_v;
    table[name + "attn.to_out.0"] = &block.to_out;
    table[name + "attn.add_q_proj"] = &block.add_q_proj;
    table[name + "attn.add_k_proj"] = &block.add_k_proj;
    table[name + "attn.add_v_proj"] = &block.add_v_proj;
    table[name + "attn.to_add_out"] = &block.to_add_out;
    table[name + "ff.linear_in"] = &block.ff_in;
    table[name + "ff.linear_out"] = &block.ff_out;
    table[name + "ff_context.linear_in"] = &block.ff_context_in;
    table[name + "ff_context.linear_out"] = &block.ff_context_out;
  }
  for (size_t i = 0; i < single_transformer_blocks_.size(); ++i) {
    SingleBlock& block = single_transformer_blocks_[i];
    const std::string name = numbered("single_transformer_blocks", static_cast<int64_t>(i));
    table[name + "attn.to_qkv_mlp_proj"] = &block.to_qkv_mlp_proj;
    table[name + "attn.to_out"] = &block.to_out;
  }
  return table;
}

void Transformer::clear_adapters() {
  for (const auto& [name, module] : modules()) module->clear_adapters();
}

void Transformer::add_adapter(const Adapter& adapter, float scale) {
  const std::map<std::string, Linear*> table = modules();
  for (const auto& [module, deltas] : adapter.deltas) {
    const auto it = table.find(module);
    if (it == table.end()) {
      throw InternalError{{"lora_module", module, "no module " + printable(module), ""}};
    }
    for (LoraDelta delta : deltas) {
      delta.factor *= scale;
      it->second->add_adapter(delta);
    }
  }
}

}  // namespace mere::klein
