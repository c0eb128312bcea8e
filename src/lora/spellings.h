// How adapter files spell names: tables of prefixes, pair suffixes, unsupported kinds, and marks of
// model families. Private to lora/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mere::lora {

enum class Part { kDown, kUp, kAlpha };

struct Key {
  std::string_view module;  // everything in front of the suffix, prefix included
  Part part;
};

// "transformer.x.lora_A.weight" -> {"transformer.x", kDown}; nullopt when `tensor_name` is neither
// half of a pair nor an alpha.
std::optional<Key> parse_key(std::string_view tensor_name);

// The kind of adapter a tensor belongs to when it is one that cannot be applied, e.g. "LoKr";
// empty otherwise.
std::string_view unsupported_kind(std::string_view tensor_name);

// `module` itself and what is left of it after each chain of known prefixes, longest first.
std::vector<std::string_view> without_prefixes(std::string_view module);

// `name` as kohya writes it: dots as underscores.
std::string flat_name(std::string_view name);

bool is_text_encoder(std::string_view module);

// The family whose marks one of `modules` bears, e.g. "FLUX.1"; empty when none does. Entries of
// text encoders are not looked at, nor is the family that `own` ("FLUX.2 Klein") belongs to. With
// `sharing_names_only`, only families are looked for that have module names in common with FLUX.2,
// so that some of their modules may match by accident.
std::string_view guess_family(const std::vector<std::string>& modules, std::string_view own,
                              bool sharing_names_only);

}  // namespace mere::lora
