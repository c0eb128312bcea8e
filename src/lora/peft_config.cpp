#include "lora/peft_config.h"

#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace mere::lora {
namespace {

constexpr const char* kMetadataKey = "lora_adapter_metadata";
constexpr const char* kPeftFile = "adapter_model.safetensors";
constexpr const char* kPeftConfigFile = "adapter_config.json";
constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr double kMaxAlpha = 1e6;
constexpr size_t kMaxPatterns = 10000;

// diffusers puts the name of the component in front of each key; PEFT itself puts nothing.
constexpr const char* kComponents[] = {"transformer.", "unet.", ""};

// "^a\\.b" -> "a.b", the two marks of regular expressions that are found in practice.
std::string plain_pattern(std::string_view pattern) {
  std::string plain;
  for (const char c : pattern) {
    if (c != '\\' && c != '^' && c != '$') plain += c;
  }
  return plain;
}

bool ends_with_name(std::string_view module, std::string_view name) {
  if (!module.ends_with(name)) return false;
  return module.size() == name.size() || module[module.size() - name.size() - 1] == '.';
}

struct Source {
  Json json;
  std::string name;
};

std::optional<Source> find_config(const SafetensorsFile& file) {
  const auto metadata = file.metadata().find(kMetadataKey);
  if (metadata != file.metadata().end()) {
    Source source{{}, file.path().string() + " (" + kMetadataKey + ")"};
    source.json = parse_json(metadata->second, source.name);
    return source;
  }
  const fs::path beside = file.path().parent_path() / kPeftConfigFile;
  std::error_code ignored;
  if (file.path().filename() != kPeftFile || !fs::exists(beside, ignored)) return std::nullopt;
  return Source{parse_json_file(beside, kMaxConfigBytes), beside.string()};
}

}  // namespace

PeftConfig PeftConfig::of(const SafetensorsFile& file) {
  PeftConfig config;
  const std::optional<Source> source = find_config(file);
  if (!source) return config;
  const auto& [json, name] = *source;
  if (!json.is_object()) throw IoError{{"adapter_damaged", name, name + ": not a JSON object", ""}};
  for (const std::string component : kComponents) {
    const std::string alpha_key = component + "lora_alpha";
    if (!json.contains(alpha_key)) continue;
    if (json_bool_or(json, (component + "use_dora").c_str(), false, name)) {
      throw UsageError{{"adapter_unsupported", name,
                        name + ": this is a DoRA adapter, which is not supported",
                        "use a plain LoRA adapter"}};
    }
    config.rank_stabilised_ = json_bool_or(json, (component + "use_rslora").c_str(), false, name);
    const double unset = 2 * kMaxAlpha;
    const double alpha =
        json_number_or(json, alpha_key.c_str(), -kMaxAlpha, kMaxAlpha, unset, name);
    if (alpha != unset) config.alpha_ = alpha;
    const auto patterns = json.find(component + "alpha_pattern");
    if (patterns == json.end() || patterns->is_null()) break;
    if (!patterns->is_object() || patterns->size() > kMaxPatterns) {
      throw IoError{{"adapter_damaged", name, name + ": alpha_pattern is not a small object", ""}};
    }
    for (const auto& [pattern, value] : patterns->items()) {
      config.patterns_[plain_pattern(pattern)] =
          json_number_or(*patterns, pattern.c_str(), -kMaxAlpha, kMaxAlpha, 0, name);
    }
    break;
  }
  return config;
}

std::optional<double> PeftConfig::alpha(std::string_view module) const {
  const std::pair<const std::string, double>* best = nullptr;
  for (const auto& row : patterns_) {
    if (!ends_with_name(module, row.first)) continue;
    if (best == nullptr || row.first.size() > best->first.size()) best = &row;
  }
  return best == nullptr ? alpha_ : best->second;
}

}  // namespace mere::lora
