#include "catalog/model_manifest.h"

#include <array>
#include <ctime>
#include <set>

#include "catalog/names.h"
#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr int kNewestSchema = 3;
constexpr size_t kMaxListItems = 256;
constexpr size_t kMaxWordBytes = 128;
constexpr size_t kMaxNoteBytes = 512;
constexpr size_t kMaxFiles = 4096;

bool is_there(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

[[noreturn]] void fail_manifest(const std::string& source, const std::string& what) {
  throw IoError{{"manifest_invalid", source, source + ": " + what, ""}};
}

// A short name without control characters: ids and variants are printed and stored in pictures.
std::string json_word(const Json& json, const char* key, const std::string& source) {
  const std::string word = json_string_or(json, key, "", source);
  if (word.size() > kMaxWordBytes)
    fail_manifest(source, std::string("\"") + key + "\" is too long");
  if (printable(word) != word) {
    fail_manifest(source, std::string("\"") + key + "\" holds control characters");
  }
  return word;
}

const Json* member(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}

const Json* list_member(const Json& json, const char* key, const std::string& source) {
  const Json* list = member(json, key);
  if (list == nullptr) return nullptr;
  if (!list->is_array() || list->size() > kMaxListItems) {
    fail_manifest(source, std::string("\"") + key + "\" is not a short list");
  }
  return list;
}

std::optional<int64_t> optional_int(const Json& json, const char* key, int64_t low, int64_t high,
                                    const std::string& source) {
  if (member(json, key) == nullptr) return std::nullopt;
  return json_int(json, key, low, high, source);
}

std::optional<double> optional_number(const Json& json, const char* key, double low, double high,
                                      const std::string& source) {
  if (member(json, key) == nullptr) return std::nullopt;
  return json_number_or(json, key, low, high, low, source);
}

void read_defaults(const Json& json, Manifest& manifest, const std::string& source) {
  const Json* defaults = member(json, "defaults");
  if (defaults == nullptr) return;
  if (!defaults->is_object()) fail_manifest(source, "\"defaults\" is not an object");
  manifest.steps = optional_int(*defaults, "steps", 1, 1000, source);
  manifest.cfg = optional_number(*defaults, "cfg", 0, 100, source);
  manifest.sigma_shift = optional_number(*defaults, "sigma_shift", 0.01, 100, source);
  manifest.width = optional_int(*defaults, "width", 1, 65536, source);
  manifest.height = optional_int(*defaults, "height", 1, 65536, source);
  manifest.max_sequence_length = optional_int(*defaults, "max_sequence_length", 1, 65536, source);
  manifest.text_encoder_out_layers =
      json_ints(*defaults, "text_encoder_out_layers", 0, 1000, source);
}

void read_lists(const Json& json, Manifest& manifest, const std::string& source) {
  if (const Json* sizes = list_member(json, "sizes", source)) {
    for (const Json& size : *sizes) {
      const auto sides = json_ints(Json{{"sizes", size}}, "sizes", 1, 65536, source);
      if (!sides || sides->size() != 2) {
        fail_manifest(source, "\"sizes\" holds something other than [width, height]");
      }
      manifest.sizes.push_back({(*sides)[0], (*sides)[1]});
    }
  }
  if (const Json* supports = list_member(json, "supports", source)) {
    manifest.supports_stated = true;
    for (const Json& word : *supports) {
      manifest.supports.push_back(json_word(Json{{"supports", word}}, "supports", source));
    }
  }
}

// The path of one component entry: relative to `root` and inside it, or absolute. nullopt when a
// candidate of "anyOf" is not there or of a type that needs other models.
std::optional<std::string> component_path(const fs::path& root, const std::string& name,
                                          const Json& entry, bool is_candidate,
                                          const std::string& source) {
  if (!entry.is_object()) fail_manifest(source, "component \"" + name + "\" is not an object");
  const std::string type = json_string_or(entry, "type", "local", source);
  if (type == "local") {
    const std::string path = json_string_or(entry, "path", name, source);
    const fs::path resolved = resolve_inside(root, path);
    if (is_candidate && !is_there(resolved)) return std::nullopt;
    return path;
  }
  if (type == "absolute") {
    const std::string path = json_string_or(entry, "path", "", source);
    if (path.size() > 4096 || path.find('\0') != std::string::npos ||
        !fs::path(path).is_absolute()) {
      fail_manifest(source, "component \"" + name + "\" is not an absolute path");
    }
    if (is_candidate && !is_there(path)) return std::nullopt;
    return path;
  }
  if (type == "anyOf" && !is_candidate) {
    const Json* candidates = list_member(entry, "candidates", source);
    if (candidates == nullptr) {
      fail_manifest(source, "component \"" + name + "\" has no \"candidates\"");
    }
    for (const Json& candidate : *candidates) {
      if (auto path = component_path(root, name, candidate, true, source)) return path;
    }
    throw UsageError{{"model_incomplete", source,
                      source + ": none of the candidates of component \"" + name + "\" is here",
                      "put the component into the model's folder"}};
  }
  if (is_candidate) return std::nullopt;
  throw UsageError{{"component_unsupported", source,
                    source + ": component \"" + name + "\" is of type \"" + printable(type, 40) +
                        "\", which this version cannot use",
                    "types: local, absolute, anyOf"}};
}

void read_components(const Json& json, ModelRoot& model, const std::string& source) {
  const Json* components = member(json, "components");
  if (components == nullptr) return;
  if (!components->is_object() || components->size() > kMaxListItems) {
    fail_manifest(source, "\"components\" is not a small object");
  }
  for (const auto& [name, entry] : components->items()) {
    const std::string shown = printable(name, 40);
    if (const auto path = component_path(model.path, shown, entry, false, source)) {
      model.component_paths.emplace_back(name, *path);
    }
  }
}

// Text that is kept for people: bounded, and without control characters.
std::string note(const Json& json, const char* key, const std::string& source) {
  return printable(json_string_or(json, key, "", source), kMaxNoteBytes);
}

void read_sources(const Json& json, ModelRoot& model, const std::string& source) {
  const Json* sources = list_member(json, "sources", source);
  if (sources == nullptr) return;
  for (const Json& item : *sources) {
    if (!item.is_object()) fail_manifest(source, "\"sources\" holds something else than objects");
    model.sources.push_back({note(item, "role", source), note(item, "repository", source),
                             note(item, "revision", source),
                             note(item, "destination_path", source)});
  }
}

void read_terms(const Json& json, ModelRoot& model, const std::string& source) {
  const Json* terms = list_member(json, "usageTerms", source);
  if (terms == nullptr) return;
  for (const Json& item : *terms) {
    if (!item.is_object())
      fail_manifest(source, "\"usageTerms\" holds something else than objects");
    model.terms.push_back({note(item, "component", source), note(item, "license", source),
                           note(item, "summary", source), note(item, "license_url", source),
                           note(item, "source_repo_id", source)});
  }
}

void read_files(const Json& json, ModelRoot& model, const std::string& source) {
  const Json* files = member(json, "files");
  if (files == nullptr) return;
  if (!files->is_array() || files->size() > kMaxFiles) {
    fail_manifest(source, "\"files\" is not a list of at most " + std::to_string(kMaxFiles));
  }
  std::set<std::string> seen;
  for (const Json& item : *files) {
    if (!item.is_object()) fail_manifest(source, "\"files\" holds something else than objects");
    InstalledFile file;
    file.path = json_string_or(item, "path", "", source);
    if (!is_relative_path(file.path)) {
      fail_manifest(source, "\"files\" names \"" + printable(file.path, 80) +
                                "\", which is no path inside the model");
    }
    if (!seen.insert(file.path).second) {
      fail_manifest(source, "\"files\" names \"" + file.path + "\" twice");
    }
    file.bytes = json_int(item, "size", 0, INT64_MAX, source);
    file.hash = json_string_or(item, "sha256", "", source);
    if (!is_sha256(file.hash) && !is_commit(file.hash)) {
      fail_manifest(source, "\"files\" has no hash of \"" + file.path + "\"");
    }
    file.source = static_cast<int>(json_int_or(item, "source", 0, kMaxListItems, 0, source));
    model.files.push_back(std::move(file));
  }
}

}  // namespace

void read_manifest(const fs::path& path, ModelRoot& model) {
  const std::string source = path.string();
  const Json json = parse_json_file(path, kMaxManifestBytes);
  const int64_t schema = json_int_or(json, "schemaVersion", 1, 1'000'000, 1, source);
  if (schema > kNewestSchema) {
    throw UsageError{{"manifest_too_new", source,
                      source + ": schemaVersion " + std::to_string(schema) +
                          " is newer than the newest this program reads, " +
                          std::to_string(kNewestSchema),
                      "update mere.run"}};
  }
  Manifest& manifest = model.manifest;
  manifest.id = json_word(json, "id", source);
  manifest.family = json_word(json, "family", source);
  manifest.variant = json_word(json, "variant", source);
  manifest.tier = json_word(json, "tier", source);
  manifest.precision = json_word(json, "precision", source);
  read_defaults(json, manifest, source);
  read_lists(json, manifest, source);
  read_components(json, model, source);
  read_sources(json, model, source);
  read_terms(json, model, source);
  read_files(json, model, source);
}

std::string manifest_of(const fs::path& root, const std::string& id, const RecognisedModel& model,
                        const RecognisedWeights& weights) {
  Json json = {{"schemaVersion", kNewestSchema},
               {"id", id},
               {"family", model.family},
               {"precision", weights.precision},
               {"createdAt", iso_time_now()}};
  if (!model.engine.empty()) json["engine"] = model.engine;
  if (!model.variant.empty()) json["variant"] = model.variant;
  if (weights.quantization) {
    json["quantization"] = {{"bits", weights.quantization->bits},
                            {"groupSize", weights.quantization->group_size},
                            {"scheme", weights.quantization->scheme}};
  }
  for (const char* component : {"scheduler", "text_encoder", "tokenizer", "transformer",
                                "unconditional_transformer", "vae"}) {
    const fs::path folder = component_folder(root, component);
    if (!is_there(folder)) continue;
    json["components"][component] = {{"type", "local"}, {"path", folder.filename().string()}};
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string iso_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

}  // namespace mere
