// The modules of the Klein transformer that an adapter may change, under every name they go by.
//
// Names are those of the checkpoint without ".weight". Further names: the original release
// (img_in, double_blocks.N.img_attn.qkv, single_blocks.N.linear1, ...), mflux
// (time_guidance_embed.linear_1, attn.to_out), fused projections of diffusers (attn.to_qkv), and
// the parts of the fused projection of single blocks (attn.to_q, proj_mlp).
// Source: the naming tables of the published checkpoints; tests/fixtures/klein/README.md.
#pragma once

#include <cstdint>

#include "lora/adapter.h"

namespace mere::klein {

struct TransformerShape {
  int64_t double_blocks = 0;
  int64_t single_blocks = 0;
  int64_t hidden = 0;
  int64_t mlp_hidden = 0;  // int(hidden * mlp_ratio)
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t context_dim = 0;
  int64_t timestep_channels = 0;
  bool guidance_embeds = false;
};

// Every name once; the rows of an alias lie inside its modules.
LoraTargets lora_targets(const TransformerShape& shape);

}  // namespace mere::klein
