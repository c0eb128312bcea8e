// The scaling a PEFT adapter declares beside its tensors. Private to lora/.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/safetensors.h"

namespace mere::lora {

// lora_alpha, alpha_pattern and use_rslora of one adapter. Patterns are taken as names, not as
// regular expressions: those come from the file, and PEFT writes plain names there.
class PeftConfig {
 public:
  // From metadata key lora_adapter_metadata, else from adapter_config.json beside a file of PEFT's
  // own name (adapter_model.safetensors); declares nothing when there is neither. IoError when it
  // is damaged; UsageError when it declares a kind that cannot be applied.
  static PeftConfig of(const SafetensorsFile& file);

  // alpha of `module` (any prefix); nullopt when not declared.
  std::optional<double> alpha(std::string_view module) const;
  // Rank-stabilised: alpha / sqrt(rank) in place of alpha / rank.
  bool rank_stabilised() const { return rank_stabilised_; }

 private:
  std::optional<double> alpha_;
  std::map<std::string, double> patterns_;
  bool rank_stabilised_ = false;
};

}  // namespace mere::lora
