// Configuration of a Klein checkpoint: transformer, autoencoder, text encoder, pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "catalog/model_root.h"
#include "families/klein/lora_targets.h"
#include "nn/autoencoder_kl_flux2.h"
#include "nn/qwen3.h"

namespace mere::klein {

struct TransformerConfig {
  int64_t in_channels = 128;
  int64_t out_channels = 128;
  int64_t num_layers = 0;         // double-stream blocks
  int64_t num_single_layers = 0;  // single-stream blocks
  int64_t attention_head_dim = 128;
  int64_t num_attention_heads = 0;
  int64_t joint_attention_dim = 0;  // width of the text embedding
  int64_t timestep_guidance_channels = 256;
  double mlp_ratio = 3.0;
  std::vector<int64_t> axes_dims_rope;  // one per position axis, sum = head dim
  double rope_theta = 2000;
  float eps = 1e-6F;
  bool guidance_embeds = false;

  int64_t hidden() const { return num_attention_heads * attention_head_dim; }
  int64_t mlp_hidden() const {
    return static_cast<int64_t>(static_cast<double>(hidden()) * mlp_ratio);
  }
  TransformerShape shape() const;

  static TransformerConfig read(const fs::path& config_json);
};

struct Config {
  TransformerConfig transformer;
  AutoencoderKlFlux2Config vae;
  Qwen3Config text_encoder;
  // Hidden states that make the text embedding, e.g. 9, 18, 27.
  std::vector<int64_t> text_encoder_out_layers;
  bool is_distilled = true;

  // Reads every config of `root` and checks that transformer and autoencoder fit together.
  static Config read(const ModelRoot& root);
  // IoError when the text encoder's states do not make the embedding that the transformer takes.
  // Apart from read(), since golden cases name states of their own.
  void check_text_fits(const ModelRoot& root) const;
};

}  // namespace mere::klein
