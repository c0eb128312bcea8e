#include "families/klein/lora_targets.h"

#include <initializer_list>
#include <string>
#include <utility>

namespace mere::klein {
namespace {

struct Module {
  std::string name;
  int64_t rows;
  int64_t in;
};

class Names {
 public:
  explicit Names(std::vector<LoraAlias>& aliases) : aliases_(aliases) {}

  // A module under its own name and others that mean the same.
  void whole(const Module& module, std::initializer_list<std::string> others) {
    group(module.name, {module});
    for (const std::string& name : others) group(name, {module});
  }

  // Modules whose rows an adapter holds one after the other.
  void group(const std::string& name, std::initializer_list<Module> modules) {
    LoraAlias alias{.name = name, .targets = {}};
    for (const Module& module : modules) {
      alias.targets.push_back({module.name, 0, module.rows, module.in});
    }
    aliases_.push_back(std::move(alias));
  }

  // Some rows of a module.
  void rows(const std::string& name, const Module& module, int64_t offset, int64_t count) {
    aliases_.push_back({.name = name, .targets = {{module.name, offset, count, module.in}}});
  }

  void swapped_halves(const std::string& name, const Module& module) {
    aliases_.push_back(
        {.name = name, .targets = {{module.name, 0, module.rows, module.in}}, .swap_halves = true});
  }

 private:
  std::vector<LoraAlias>& aliases_;
};

void add_embedders(Names& names, const TransformerShape& s) {
  names.whole({"x_embedder", s.hidden, s.in_channels}, {"img_in"});
  names.whole({"context_embedder", s.hidden, s.context_dim}, {"txt_in"});
  const std::string time = "time_guidance_embed.timestep_embedder.linear_";
  names.whole({time + "1", s.hidden, s.timestep_channels},
              {"time_in.in_layer", "time_guidance_embed.linear_1"});
  names.whole({time + "2", s.hidden, s.hidden},
              {"time_in.out_layer", "time_guidance_embed.linear_2"});
  if (!s.guidance_embeds) return;
  const std::string guidance = "time_guidance_embed.guidance_embedder.linear_";
  names.whole({guidance + "1", s.hidden, s.timestep_channels}, {"guidance_in.in_layer"});
  names.whole({guidance + "2", s.hidden, s.hidden}, {"guidance_in.out_layer"});
}

void add_modulation_and_output(Names& names, const TransformerShape& s) {
  for (const std::string stream : {"img", "txt"}) {
    const std::string name = "double_stream_modulation_" + stream;
    names.whole({name + ".linear", 6 * s.hidden, s.hidden}, {name + ".lin"});
  }
  names.whole({"single_stream_modulation.linear", 3 * s.hidden, s.hidden},
              {"single_stream_modulation.lin"});
  const Module norm_out{"norm_out.linear", 2 * s.hidden, s.hidden};  // scale, then shift
  names.whole(norm_out, {});
  names.swapped_halves("final_layer.adaLN_modulation.1", norm_out);  // shift, then scale
  names.whole({"proj_out", s.out_channels, s.hidden}, {"final_layer.linear"});
}

// One stream (image or text) of a double block.
struct Stream {
  std::string original;  // "img"
  std::string q, k, v, out, fused;
  std::string mlp;
};

const Stream kStreams[] = {
    {"img", "to_q", "to_k", "to_v", "to_out.0", "to_qkv", "ff"},
    {"txt", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out", "to_added_qkv", "ff_context"},
};

void add_double_block(Names& names, const TransformerShape& s, const std::string& n) {
  const std::string block = "transformer_blocks." + n + ".";
  const std::string attention = block + "attn.";
  for (const Stream& stream : kStreams) {
    const std::string original = "double_blocks." + n + "." + stream.original + "_";
    const Module q{attention + stream.q, s.hidden, s.hidden};
    const Module k{attention + stream.k, s.hidden, s.hidden};
    const Module v{attention + stream.v, s.hidden, s.hidden};
    for (const Module& part : {q, k, v}) names.whole(part, {});
    names.group(attention + stream.fused, {q, k, v});
    names.group(original + "attn.qkv", {q, k, v});
    const Module out{attention + stream.out, s.hidden, s.hidden};
    names.whole(out, {original + "attn.proj"});
    if (stream.original == "img") names.group(attention + "to_out", {out});  // mflux
    names.whole({block + stream.mlp + ".linear_in", 2 * s.mlp_hidden, s.hidden},
                {original + "mlp.0"});
    names.whole({block + stream.mlp + ".linear_out", s.hidden, s.mlp_hidden}, {original + "mlp.2"});
  }
}

void add_single_block(Names& names, const TransformerShape& s, const std::string& n) {
  const std::string block = "single_transformer_blocks." + n + ".";
  const std::string attention = block + "attn.";
  const std::string original = "single_blocks." + n + ".";
  const Module in{attention + "to_qkv_mlp_proj", 3 * s.hidden + 2 * s.mlp_hidden, s.hidden};
  names.whole(in, {original + "linear1"});
  names.rows(attention + "to_q", in, 0, s.hidden);
  names.rows(attention + "to_k", in, s.hidden, s.hidden);
  names.rows(attention + "to_v", in, 2 * s.hidden, s.hidden);
  names.rows(attention + "to_qkv", in, 0, 3 * s.hidden);
  names.rows(attention + "proj_mlp", in, 3 * s.hidden, 2 * s.mlp_hidden);
  names.rows(block + "proj_mlp", in, 3 * s.hidden, 2 * s.mlp_hidden);
  names.whole({attention + "to_out", s.hidden, s.hidden + s.mlp_hidden},
              {original + "linear2", block + "proj_out"});
}

}  // namespace

LoraTargets lora_targets(const TransformerShape& shape) {
  LoraTargets targets{.family = "FLUX.2 Klein", .names = {}};
  Names names(targets.names);
  add_embedders(names, shape);
  add_modulation_and_output(names, shape);
  for (int64_t n = 0; n < shape.double_blocks; ++n) {
    add_double_block(names, shape, std::to_string(n));
  }
  for (int64_t n = 0; n < shape.single_blocks; ++n) {
    add_single_block(names, shape, std::to_string(n));
  }
  return targets;
}

}  // namespace mere::klein
