#include "catalog/catalog_file.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "catalog/names.h"
#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr size_t kMaxEntries = 1000;
constexpr size_t kMaxSources = 32;
constexpr size_t kMaxGlobs = 256;
constexpr size_t kMaxWordBytes = 96;
constexpr size_t kMaxTextBytes = 300;
constexpr size_t kMaxUrlBytes = 2048;
constexpr int64_t kMaxBytes = 100'000'000'000'000;
constexpr int kMaxMemoryGb = 4096;

// One object of the catalog. Typed access that names the object in errors, and refuses keys that
// nobody asked for: a misspelt key would silently change what is downloaded.
class Entry {
 public:
  Entry(const Json& json, std::string where, const std::string& source)
      : json_(json), where_(std::move(where)), source_(source) {
    if (!json_.is_object()) fail("is not an object");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw IoError{{"catalog_invalid", source_, source_ + ": " + where_ + " " + what, ""}};
  }

  const std::string& where() const { return where_; }
  const std::string& source() const { return source_; }

  void only(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : json_.items()) {
      if (std::ranges::find(keys, key) == keys.end()) {
        fail("has an unknown key \"" + printable(key, 60) + "\"");
      }
    }
  }

  bool has(const char* key) const { return json_.contains(key); }

  std::string text(const char* key, size_t max_bytes, bool required = false) const {
    const auto it = json_.find(key);
    if (it == json_.end()) {
      if (required) fail("has no \"" + std::string(key) + "\"");
      return {};
    }
    if (!it->is_string()) fail_key(key, "is not a string");
    std::string value = it->get<std::string>();
    if (value.empty() || value.size() > max_bytes) fail_key(key, "is empty or too long");
    if (printable(value, max_bytes) != value) fail_key(key, "holds control characters");
    return value;
  }

  template <typename Check>
  std::string checked(const char* key, size_t max_bytes, const Check& is_legal,
                      bool required = false) const {
    std::string value = text(key, max_bytes, required);
    if (!value.empty() && !is_legal(value)) fail_key(key, "is not legal: " + printable(value, 80));
    return value;
  }

  bool flag(const char* key) const {
    const auto it = json_.find(key);
    if (it == json_.end()) return false;
    if (!it->is_boolean()) fail_key(key, "is not true or false");
    return it->get<bool>();
  }

  std::optional<int64_t> integer(const char* key, int64_t low, int64_t high) const {
    if (!has(key)) return std::nullopt;
    return json_int(json_, key, low, high, source_ + ": " + where_);
  }

  std::optional<double> number(const char* key, double low, double high) const {
    if (!has(key)) return std::nullopt;
    return json_number_or(json_, key, low, high, low, source_ + ": " + where_);
  }

  // Members of a list, in order; none when it is absent.
  std::vector<Json> list(const char* key, size_t most, bool required = false) const {
    const auto it = json_.find(key);
    if (it == json_.end()) {
      if (required) fail("has no \"" + std::string(key) + "\"");
      return {};
    }
    if (!it->is_array() || it->size() > most) fail_key(key, "is not a short list");
    return it->get<std::vector<Json>>();
  }

  template <typename Check>
  std::vector<std::string> words(const char* key, size_t most, const Check& is_legal) const {
    std::vector<std::string> out;
    for (const Json& item : list(key, most)) {
      if (!item.is_string() || !is_legal(item.get_ref<const std::string&>())) {
        fail_key(key, "holds something that is not legal");
      }
      out.push_back(item.get<std::string>());
    }
    return out;
  }

 private:
  [[noreturn]] void fail_key(const char* key, const std::string& what) const {
    fail(std::string("\"") + key + "\" " + what);
  }

  const Json& json_;
  std::string where_;
  const std::string& source_;
};

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= kMaxWordBytes && printable(text) == text;
}

// Ids of the catalog are in lower case, so that no two differ in case only.
bool is_catalog_id(std::string_view text) {
  return is_model_id(text) && text.size() <= kMaxWordBytes && lower(text) == text;
}

bool is_url(std::string_view text, std::string_view scheme) {
  return text.size() <= kMaxUrlBytes && text.starts_with(scheme) && text.size() > scheme.size() &&
         text.find(' ') == std::string_view::npos;
}

bool is_secure_url(std::string_view text) { return is_url(text, "https://"); }

bool is_web_url(std::string_view text) { return is_secure_url(text) || is_url(text, "http://"); }

PinnedFile read_pin(const Entry& entry) {
  entry.only({"path", "bytes", "sha256"});
  PinnedFile pin;
  pin.path = entry.checked("path", 512, is_relative_path, true);
  pin.bytes = entry.integer("bytes", 1, kMaxBytes).value_or(0);
  pin.sha256 = entry.checked("sha256", 64, is_sha256, true);
  if (pin.bytes == 0) entry.fail("has no \"bytes\"");
  return pin;
}

HubSource read_source(const Entry& entry) {
  entry.only({"repository", "revision", "include", "exclude", "mount", "role", "pins"});
  HubSource source;
  source.repository = entry.checked("repository", 193, is_repository, true);
  source.revision = entry.checked("revision", kMaxWordBytes, is_model_id, true);
  source.include = entry.words("include", kMaxGlobs, is_relative_path);
  source.exclude = entry.words("exclude", kMaxGlobs, is_relative_path);
  source.mount = entry.checked("mount", 512, is_relative_path);
  source.role = entry.text("role", kMaxWordBytes, true);
  for (const Json& item : entry.list("pins", kMaxGlobs)) {
    source.pins.push_back(read_pin(Entry(item, entry.where() + " pin", entry.source())));
  }
  return source;
}

UsageTerms read_terms(const Entry& entry) {
  entry.only({"component", "license", "summary", "license_url", "source_repository"});
  UsageTerms terms;
  terms.component = entry.text("component", kMaxTextBytes, true);
  terms.license = entry.text("license", kMaxTextBytes, true);
  terms.summary = entry.text("summary", kMaxTextBytes, true);
  terms.license_url = entry.checked("license_url", 512, is_secure_url, true);
  terms.source_repository = entry.checked("source_repository", 193, is_repository, true);
  return terms;
}

void read_defaults(const Json& json, const Entry& parent, CatalogModel& model) {
  const Entry entry(json, parent.where() + " defaults", parent.source());
  entry.only({"steps", "cfg", "sigma_shift"});
  if (const auto steps = entry.integer("steps", 1, 1000)) {
    model.default_steps = static_cast<int>(*steps);
  }
  model.default_cfg = entry.number("cfg", 0, 100);
  model.default_sigma_shift = entry.number("sigma_shift", 0.01, 100);
}

CatalogQuantization read_quantization(const Json& json, const Entry& parent) {
  const Entry entry(json, parent.where() + " quantization", parent.source());
  entry.only({"bits", "group_size", "scheme"});
  CatalogQuantization quantization;
  quantization.bits = static_cast<int>(entry.integer("bits", 1, 8).value_or(0));
  quantization.group_size = static_cast<int>(entry.integer("group_size", 1, 1024).value_or(0));
  quantization.scheme = entry.text("scheme", kMaxWordBytes, true);
  if (quantization.bits == 0 || quantization.group_size == 0) {
    entry.fail("has no \"bits\" or no \"group_size\"");
  }
  return quantization;
}

CatalogModel read_model(const Json& json, const std::string& source) {
  const std::string id = json.is_object() && json.contains("id") && json["id"].is_string()
                             ? json["id"].get<std::string>()
                             : "without an id";
  const Entry entry(json, "model " + printable(id, 60), source);
  entry.only({"id",
              "category",
              "family",
              "engine",
              "summary",
              "sources",
              "companions",
              "download_bytes",
              "license",
              "terms",
              "needs_token",
              "min_memory_gb",
              "recommended_memory_gb",
              "setup",
              "hidden",
              "tier",
              "variant",
              "precision",
              "quantization",
              "defaults",
              "supports"});
  CatalogModel model;
  model.id = entry.checked("id", kMaxWordBytes, is_catalog_id, true);
  model.category = entry.text("category", kMaxWordBytes, true);
  model.family = entry.text("family", kMaxWordBytes);
  model.engine = entry.text("engine", kMaxWordBytes);
  model.summary = entry.text("summary", kMaxTextBytes, true);
  for (const Json& item : entry.list("sources", kMaxSources, true)) {
    model.sources.push_back(read_source(Entry(item, entry.where() + " source", source)));
  }
  model.companions = entry.words("companions", kMaxSources, is_catalog_id);
  model.download_bytes = entry.integer("download_bytes", 1, kMaxBytes);
  model.license = entry.text("license", kMaxTextBytes);
  for (const Json& item : entry.list("terms", kMaxSources)) {
    model.terms.push_back(read_terms(Entry(item, entry.where() + " terms", source)));
  }
  model.needs_token = entry.flag("needs_token");
  model.min_memory_gb =
      static_cast<int>(entry.integer("min_memory_gb", 1, kMaxMemoryGb).value_or(0));
  model.recommended_memory_gb =
      static_cast<int>(entry.integer("recommended_memory_gb", 1, kMaxMemoryGb).value_or(0));
  if (model.recommended_memory_gb < model.min_memory_gb) {
    entry.fail("recommends less memory than it needs");
  }
  model.setup = entry.flag("setup");
  model.hidden = entry.flag("hidden");
  model.tier = entry.text("tier", kMaxWordBytes);
  model.variant = entry.text("variant", kMaxWordBytes);
  model.precision = entry.text("precision", kMaxWordBytes);
  if (entry.has("quantization"))
    model.quantization = read_quantization(json["quantization"], entry);
  if (entry.has("defaults")) read_defaults(json["defaults"], entry, model);
  model.supports = entry.words("supports", kMaxSources, is_word);
  return model;
}

CatalogAdapter read_adapter(const Json& json, const std::string& source) {
  const std::string id = json.is_object() && json.contains("id") && json["id"].is_string()
                             ? json["id"].get<std::string>()
                             : "without an id";
  const Entry entry(json, "adapter " + printable(id, 60), source);
  entry.only({"id", "version", "base", "url", "bytes", "sha256", "license", "needs_acceptance"});
  CatalogAdapter adapter;
  adapter.id = entry.checked("id", kMaxWordBytes, is_catalog_id, true);
  adapter.version = entry.checked("version", kMaxWordBytes, is_model_id);
  if (adapter.version.empty()) adapter.version = "1";
  adapter.base = entry.checked("base", kMaxWordBytes, is_catalog_id);
  adapter.url = entry.checked("url", kMaxUrlBytes, is_web_url);
  adapter.bytes = entry.integer("bytes", 1, kMaxBytes).value_or(0);
  adapter.sha256 = entry.checked("sha256", 64, is_sha256);
  adapter.license = entry.text("license", kMaxTextBytes);
  adapter.needs_acceptance = entry.flag("needs_acceptance");
  return adapter;
}

template <typename Item>
void check_unique(const std::vector<Item>& items, const Entry& top) {
  std::set<std::string_view> ids;
  for (const Item& item : items) {
    if (!ids.insert(item.id).second) top.fail("has two entries \"" + item.id + "\"");
  }
}

void check_companions(const std::vector<CatalogModel>& models, const Entry& top) {
  for (const CatalogModel& model : models) {
    for (const std::string& companion : model.companions) {
      if (companion == model.id ||
          std::ranges::find(models, companion, &CatalogModel::id) == models.end()) {
        top.fail("names companion \"" + companion + "\" of \"" + model.id +
                 "\", which is no other entry");
      }
    }
  }
}

}  // namespace

Catalog parse_catalog(std::string_view json, const std::string& source) {
  const Json document = parse_json(json, source);
  const Entry top(document, "the catalog", source);
  top.only({"models", "adapters"});
  Catalog catalog;
  for (const Json& item : top.list("models", kMaxEntries, true)) {
    catalog.models.push_back(read_model(item, source));
  }
  for (const Json& item : top.list("adapters", kMaxEntries, true)) {
    catalog.adapters.push_back(read_adapter(item, source));
  }
  check_unique(catalog.models, top);
  check_unique(catalog.adapters, top);
  check_companions(catalog.models, top);
  return catalog;
}

}  // namespace mere
