// Qwen3 decoder used as a text encoder: hidden states after chosen layers, no head.
// Source: transformers Qwen3Model (modeling_qwen3.py). Names are those of the checkpoint.
//
// Easy to get wrong: q and k are RMS-normed per head before the rotation; the rotation pairs x[i]
// with x[i + D/2]; head_dim is its own config value; hidden state k is the residual stream after k
// layers (0: the embeddings), except the last, k = num_hidden_layers, which is after the final
// norm; padding rows are queries like any other and attend to the valid prefix only.
#pragma once

#include <map>
#include <vector>

#include "core/progress.h"
#include "nn/layers.h"

namespace mere {

struct Qwen3Config {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  float rms_norm_eps = 1e-6F;
  double rope_theta = 1e6;
  bool attention_bias = false;

  // IoError naming the file when a field is missing, out of range, or of a variant this does not
  // do.
  static Qwen3Config read(const fs::path& config_json);
};

// Maps the names of other layouts (no "model." prefix) to the checkpoint's.
std::string qwen3_checkpoint_name(const std::string& stored_name);

class Qwen3 {
 public:
  // Only the first `layers` decoder layers are read, and the final norm when these
  // are all.
  Qwen3(const Qwen3Config& config, const Weights& weights, int64_t layers);

  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }

  // ids [B, L] int32, right-padded; valid [B] int32 is the number of real tokens of each row.
  // Result: state -> [B, L, hidden] float32 for every requested state.
  std::map<int64_t, Array> hidden_states(const Array& ids, const Array& valid,
                                         const std::vector<int64_t>& states,
                                         Progress* progress = nullptr) const;

 private:
  struct Layer {
    Array input_layernorm;
    Linear q_proj, k_proj, v_proj, o_proj;
    Array q_norm, k_norm;
    Array post_attention_layernorm;
    Linear gate_proj, up_proj, down_proj;
  };
  static Layer read_layer(const Qwen3Config& config, const Weights& weights, int64_t index);
  Array attention_of(const Layer& layer, const Array& x, const Array& cos, const Array& sin,
                     const Array& valid) const;

  Qwen3Config config_;
  Embedding embed_tokens_;
  std::vector<Layer> layers_;
  std::optional<Array> norm_;
};

}  // namespace mere
