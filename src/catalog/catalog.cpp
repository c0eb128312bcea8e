#include "catalog/catalog.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr size_t kMaxCatalogBytes = size_t{8} << 20;

std::vector<std::string> words(const Json& json, const char* key) {
  std::vector<std::string> out;
  const auto it = json.find(key);
  if (it == json.end() || !it->is_array()) return out;
  for (const Json& word : *it) out.push_back(word.get<std::string>());
  return out;
}

CatalogModel read_model(const Json& json, const std::string& source) {
  const auto text = [&](const Json& from, const char* key) {
    return json_string_or(from, key, "", source);
  };
  CatalogModel model;
  model.id = text(json, "id");
  model.category = text(json, "category");
  model.family = text(json, "family");
  model.engine = text(json, "engine");
  model.license = text(json, "license");
  model.tier = text(json, "tier");
  model.variant = text(json, "variant");
  model.precision = text(json, "precision");
  model.companions = words(json, "companions");
  model.supports = words(json, "supports");
  model.needs_token = json_bool_or(json, "needs_token", false, source);
  model.min_memory_gb = static_cast<int>(json_int_or(json, "min_memory_gb", 0, 1 << 20, 0, source));
  model.recommended_memory_gb =
      static_cast<int>(json_int_or(json, "recommended_memory_gb", 0, 1 << 20, 0, source));
  if (json.contains("download_bytes")) {
    model.download_bytes = json_int(json, "download_bytes", 0, INT64_MAX, source);
  }
  for (const Json& entry : json.value("sources", Json::array())) {
    model.sources.push_back({text(entry, "repository"), text(entry, "revision"),
                             words(entry, "include"), words(entry, "exclude"), text(entry, "mount"),
                             text(entry, "role")});
  }
  for (const Json& entry : json.value("terms", Json::array())) {
    model.terms.push_back({text(entry, "component"), text(entry, "license"), text(entry, "summary"),
                           text(entry, "license_url"), text(entry, "source_repository")});
  }
  if (json.contains("quantization") && json["quantization"].is_object()) {
    const Json& q = json["quantization"];
    model.quantization = {static_cast<int>(json_int_or(q, "bits", 0, 64, 0, source)),
                          static_cast<int>(json_int_or(q, "group_size", 0, 65536, 0, source)),
                          text(q, "scheme")};
  }
  const Json defaults = json.value("defaults", Json::object());
  if (defaults.contains("steps")) {
    model.default_steps = static_cast<int>(json_int(defaults, "steps", 1, 1000, source));
  }
  if (defaults.contains("cfg")) {
    model.default_cfg = json_number_or(defaults, "cfg", 0, 100, 0, source);
  }
  if (defaults.contains("sigma_shift")) {
    model.default_sigma_shift = json_number_or(defaults, "sigma_shift", 0, 100, 0, source);
  }
  return model;
}

std::vector<CatalogModel> load() {
  const char* file = std::getenv("MERERUN_CATALOG");
  if (file == nullptr || *file == '\0') return {};
  std::vector<CatalogModel> models;
  const Json json = parse_json_file(file, kMaxCatalogBytes);
  for (const Json& entry : json.at("models")) models.push_back(read_model(entry, file));
  return models;
}

std::string plain(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

}  // namespace

const std::vector<CatalogModel>& catalog_models() {
  static const std::vector<CatalogModel> models = load();
  return models;
}

const CatalogModel* find_catalog_model(std::string_view id_or_repository) {
  const std::string wanted = plain(id_or_repository);
  for (const CatalogModel& model : catalog_models()) {
    if (plain(model.id) == wanted) return &model;
  }
  for (const CatalogModel& model : catalog_models()) {
    if (!model.sources.empty() && plain(model.sources.front().repository) == wanted) return &model;
  }
  return nullptr;
}

}  // namespace mere
