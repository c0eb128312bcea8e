// Flux2Transformer2DModel: double-stream blocks (image and text with their own weights, one joint
// attention), then single-stream blocks over the joined sequence. Names are the checkpoint's.
// Source: diffusers transformer_flux2.py.
//
// Easy to get wrong: joint order is [text, image]; modulation is computed once per model, not per
// block; the first half of linear_in is the SiLU gate; norm_out.linear gives scale first, then
// shift; no linear layer has a bias; timestep enters as sigma and is multiplied by 1000.
#pragma once

#include <span>
#include <vector>

#include "core/progress.h"
#include "families/klein/config.h"
#include "nn/layers.h"

namespace mere::klein {

// One row of four coordinates (T, H, W, L) per token.
using PositionIds = std::vector<std::array<int64_t, 4>>;

// Text token i: (0, 0, 0, i).
PositionIds text_position_ids(int64_t tokens);
// Row-major grid: (time, row, column, 0). Generated image: time 0; reference k: time 10 + 10 k.
PositionIds image_position_ids(int64_t height, int64_t width, int64_t time);

struct RotaryTables {
  Array cos;  // [L, head_dim / 2]
  Array sin;
};
// Frequencies in float64, tables in float32, axes side by side in the order T, H, W, L.
RotaryTables rotary_tables(const TransformerConfig& config, const PositionIds& ids);

// Maps mflux names to the checkpoint's (time_guidance_embed.linear_1, attn.to_out without .0).
std::string transformer_checkpoint_name(const std::string& stored_name);

struct TransformerInput {
  Array hidden_states;            // [B, N, in_channels] packed latents, references after the image
  Array encoder_hidden_states;    // [B, L, joint_attention_dim]
  std::vector<float> sigma;       // B or 1 values in 0..1
  std::vector<float> guidance{};  // as sigma; only for checkpoints with guidance_embeds
  RotaryTables rotary;            // of [text, image] positions
};

class Transformer {
 public:
  Transformer(const TransformerConfig& config, const Weights& weights);

  // Velocity [B, N, out_channels]. Evaluated block by block; `progress` may cancel between blocks.
  Array operator()(const TransformerInput& input, const Progress* progress = nullptr,
                   Taps* taps = nullptr) const;

  // Adds the deltas of `adapter`, times `scale`, to its modules.
  void add_adapter(const Adapter& adapter, float scale);
  void clear_adapters();

 private:
  struct Modulation;
  struct DoubleBlock {
    Linear to_q, to_k, to_v, to_out;
    Linear add_q_proj, add_k_proj, add_v_proj, to_add_out;
    Array norm_q, norm_k, norm_added_q, norm_added_k;
    Linear ff_in, ff_out, ff_context_in, ff_context_out;
  };
  struct SingleBlock {
    Linear to_qkv_mlp_proj, to_out;
    Array norm_q, norm_k;
  };
  struct TimeEmbedder {
    Linear linear_1, linear_2;
    Array operator()(std::span<const float> values, int64_t channels) const;
  };
  static DoubleBlock read_double(const TransformerConfig& c, const Weights& w, int64_t index);
  static SingleBlock read_single(const TransformerConfig& c, const Weights& w, int64_t index);
  void run_double(const DoubleBlock& block, const Modulation& img_mod, const Modulation& txt_mod,
                  const RotaryTables& rotary, Array& img, Array& txt) const;
  // x [B, L, hidden] -> tokens from `first_token` on, the only ones that are computed in full.
  Array run_single(const SingleBlock& block, const Modulation& mod, const RotaryTables& rotary,
                   const Array& x, int64_t first_token) const;
  Array heads(const Array& x) const;
  Array attend(const Array& q, const Array& k, const Array& v, const RotaryTables& rotary) const;
  std::map<std::string, Linear*> modules();

  TransformerConfig config_;
  Linear x_embedder_, context_embedder_;
  TimeEmbedder timestep_embedder_;
  std::optional<TimeEmbedder> guidance_embedder_;
  Linear double_stream_modulation_img_, double_stream_modulation_txt_, single_stream_modulation_;
  std::vector<DoubleBlock> transformer_blocks_;
  std::vector<SingleBlock> single_transformer_blocks_;
  Linear norm_out_, proj_out_;
};

}  // namespace mere::klein
