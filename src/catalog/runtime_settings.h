// How a server treats a model: alias, residency, defaults of requests. One file a store,
// <models>/.mere-run/runtime-model-settings.json.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/files.h"

namespace mere {

struct RuntimeSettings {
  std::optional<std::string> alias;    // another id for requests
  std::optional<bool> pinned;          // never unloaded for want of use
  std::optional<int64_t> ttl_seconds;  // idle time until it is unloaded
  std::optional<int64_t> max_context_tokens;
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;         // 0 to 5
  std::optional<double> top_p;               // above 0, at most 1
  std::optional<double> min_p;               // 0 to 1
  std::optional<std::string> engine;         // instead of the model's own
  std::optional<std::string> kv_cache_mode;  // "default", "affine8", "polar2", "auto"

  bool operator==(const RuntimeSettings&) const = default;
};

using AllRuntimeSettings = std::map<std::string, RuntimeSettings>;  // by id

fs::path runtime_settings_path(const fs::path& models_dir);

// Missing: empty. IoError when the file is damaged.
AllRuntimeSettings read_runtime_settings(const fs::path& models_dir);

// The id that `id_or_alias` means in these settings: an alias's model, else itself.
std::string id_of_alias(const std::string& id_or_alias, const AllRuntimeSettings& settings);

// Reads, changes and writes the settings of `id` with no other process between. `change` may throw;
// nothing is written then. Returns the new settings. UsageError when an alias is taken.
RuntimeSettings change_runtime_settings(const fs::path& models_dir, const std::string& id,
                                        const std::function<void(RuntimeSettings&)>& change);

}  // namespace mere
