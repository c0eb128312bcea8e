// LoRA adapters: every common spelling read into deltas for the modules of one model.
//
//   const LoraTargets targets = klein::lora_targets(shape);       // module names, shapes, aliases
//   const Adapter adapter = read_adapter(path, targets);
//   for (const auto& [module, deltas] : adapter.deltas) ...       // y += factor * (x A^T) B^T
//
// Spellings understood, in any mix: prefixes transformer., diffusion_model., base_model.model.,
// lora_unet_ (kohya: dots as underscores), none; pairs lora_A/lora_B, lora_down/lora_up, lora.down/
// lora.up, with .weight, .default.weight (mflux, PEFT); <module>.alpha tensors; lora_alpha,
// alpha_pattern and use_rslora under metadata key lora_adapter_metadata, or in adapter_config.json
// beside an adapter_model.safetensors (PEFT); module names of diffusers, of the original release
// (double_blocks, single_blocks) and mflux; fused or split q, k, v.
// LoKr, LoHa, DoRA and full-weight differences are recognised and refused by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/files.h"
#include "tensor/tensor.h"

namespace mere {

// Rows [row_offset, row_offset + rows) of a Linear module.
struct LoraTarget {
  std::string module;  // name in the model, e.g. "transformer_blocks.0.attn.to_q"
  int64_t row_offset = 0;
  int64_t rows = 0;
  int64_t in = 0;
};

// Where the rows of an adapter of the given name go, in order; their rows add up to its output.
struct LoraAlias {
  std::string name;
  std::vector<LoraTarget> targets;
  // The adapter's output halves are stored in the other order (original release's final modulation:
  // shift then scale). For one target with an even number of rows.
  bool swap_halves = false;
};

struct LoraTargets {
  std::string family;            // for messages: "FLUX.2 Klein"
  std::vector<LoraAlias> names;  // every name a module or a group of modules may go by
};

struct LoraDelta {
  Array a;              // [rank, in], as stored
  Array b;              // [rows, rank], as stored
  float factor = 1.0F;  // alpha / rank, or 1
  int64_t row_offset = 0;
  int64_t rows = 0;
};

struct Adapter {
  std::map<std::string, std::vector<LoraDelta>> deltas;  // by model module
  int64_t applied = 0;                                   // adapter modules that found their place
  int64_t total = 0;                                     // adapter modules in the file
  // Names of adapter modules without a place, and of tensors that are no part of a pair; sorted.
  std::vector<std::string> unmatched;
};

// UsageError when the file does not exist, no module matches (message: three unmatched names and,
// where it can be told, the model family the adapter is for), unmatched names show that it is for
// another family although some of its names exist here (FLUX.1 on FLUX.2), or the kind of adapter
// is not supported; IoError naming file and tensor when a half of a pair is missing, a value is not
// finite, the rank is not 1 to 4096, or a shape or type does not fit.
Adapter read_adapter(const fs::path& path, const LoraTargets& targets);

}  // namespace mere
