#include "catalog/runtime_settings.h"

#include <algorithm>

#include "catalog/catalog.h"
#include "catalog/model_root.h"
#include "catalog/names.h"
#include "catalog/store_places.h"
#include "core/error.h"
#include "core/file_lock.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr size_t kMaxSettingsBytes = size_t{1} << 20;
constexpr size_t kMaxModels = 1000;

template <typename Value>
void put(Json& json, const char* key, const std::optional<Value>& value) {
  if (value) json[key] = *value;
}

std::optional<std::string> word(const Json& json, const char* key, const std::string& source) {
  const std::string value = json_string_or(json, key, "", source);
  if (value.empty()) return std::nullopt;
  if (!is_model_id(value)) {
    throw IoError{{"settings_invalid", source, source + ": \"" + key + "\" is not legal", ""}};
  }
  return value;
}

template <typename Read>
auto when_there(const Json& json, const char* key, const Read& read)
    -> std::optional<decltype(read())> {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return std::nullopt;
  return read();
}

RuntimeSettings from_json(const Json& json, const std::string& source) {
  if (!json.is_object()) {
    throw IoError{{"settings_invalid", source, source + ": a model has no object", ""}};
  }
  const auto integer = [&](const char* key) {
    return when_there(json, key, [&] { return json_int(json, key, 0, INT32_MAX, source); });
  };
  const auto number = [&](const char* key, double high) {
    return when_there(json, key, [&] { return json_number_or(json, key, 0, high, 0, source); });
  };
  RuntimeSettings settings;
  settings.alias = word(json, "alias", source);
  settings.pinned =
      when_there(json, "pinned", [&] { return json_bool_or(json, "pinned", false, source); });
  settings.ttl_seconds = integer("ttlSeconds");
  settings.max_context_tokens = integer("maxContextTokens");
  settings.max_tokens = integer("maxTokens");
  settings.temperature = number("temperature", 5);
  settings.top_p = number("topP", 1);
  settings.min_p = number("minP", 1);
  settings.engine = word(json, "engineOverride", source);
  settings.kv_cache_mode = word(json, "kvCacheMode", source);
  return settings;
}

Json to_json(const RuntimeSettings& settings) {
  Json json = Json::object();
  put(json, "alias", settings.alias);
  put(json, "pinned", settings.pinned);
  put(json, "ttlSeconds", settings.ttl_seconds);
  put(json, "maxContextTokens", settings.max_context_tokens);
  put(json, "maxTokens", settings.max_tokens);
  put(json, "temperature", settings.temperature);
  put(json, "topP", settings.top_p);
  put(json, "minP", settings.min_p);
  put(json, "engineOverride", settings.engine);
  put(json, "kvCacheMode", settings.kv_cache_mode);
  return json;
}

void check_alias(const RuntimeSettings& settings, const std::string& id,
                 const AllRuntimeSettings& all, const fs::path& models_dir) {
  if (!settings.alias) return;
  const std::string alias = lower(*settings.alias);
  StorePlaces store;
  store.models_dir = models_dir;
  bool taken = find_catalog_model(alias) != nullptr || alias == kEmbeddedModelId ||
               find_model_folder(alias, store).has_value();
  for (const auto& [other, its] : all) {
    taken = taken ||
            (other != id && (lower(other) == alias || (its.alias && lower(*its.alias) == alias)));
  }
  if (!taken || alias == lower(id)) return;
  throw UsageError{{"alias_taken", "--alias",
                    "--alias: \"" + *settings.alias + "\" already names another model", ""}};
}

}  // namespace

fs::path runtime_settings_path(const fs::path& models_dir) {
  return models_dir / ".mere-run" / "runtime-model-settings.json";
}

AllRuntimeSettings read_runtime_settings(const fs::path& models_dir) {
  const fs::path path = runtime_settings_path(models_dir);
  std::error_code ec;
  if (!fs::exists(path, ec)) return {};
  const std::string source = path.string();
  const Json json = parse_json_file(path, kMaxSettingsBytes);
  json_int_or(json, "schemaVersion", 1, 1, 1, source);
  AllRuntimeSettings all;
  const auto models = json.find("models");
  if (models == json.end() || !models->is_object() || models->size() > kMaxModels) {
    throw IoError{{"settings_invalid", source, source + ": \"models\" is not a small object", ""}};
  }
  for (const auto& [id, settings] : models->items()) {
    if (!is_model_id(id)) {
      throw IoError{{"settings_invalid", source, source + ": holds an id that is not legal", ""}};
    }
    all.emplace(id, from_json(settings, source));
  }
  return all;
}

std::string id_of_alias(const std::string& id_or_alias, const AllRuntimeSettings& settings) {
  const std::string wanted = lower(id_or_alias);
  for (const auto& [id, its] : settings) {
    if (its.alias && lower(*its.alias) == wanted) return id;
  }
  return id_or_alias;
}

RuntimeSettings change_runtime_settings(const fs::path& models_dir, const std::string& id,
                                        const std::function<void(RuntimeSettings&)>& change) {
  const fs::path path = runtime_settings_path(models_dir);
  const FileLock lock = FileLock::acquire(path.parent_path() / ".lock");
  AllRuntimeSettings all = read_runtime_settings(models_dir);
  RuntimeSettings& settings = all[id];
  change(settings);
  check_alias(settings, id, all, models_dir);
  RuntimeSettings changed = settings;
  if (changed == RuntimeSettings{}) all.erase(id);
  if (all.size() > kMaxModels) {
    throw UsageError{{"too_many_settings", "ID",
                      "no more than " + std::to_string(kMaxModels) + " models can have settings",
                      ""}};
  }
  Json models = Json::object();
  for (const auto& [name, its] : all) models[name] = to_json(its);
  write_file_atomic(path, Json{{"schemaVersion", 1}, {"models", models}}.dump(2) + "\n");
  return changed;
}

}  // namespace mere
