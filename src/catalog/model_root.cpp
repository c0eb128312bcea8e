#include "catalog/model_root.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"
#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr const char* kManifestName = "mererun_model.json";
constexpr const char* kModelIndexName = "model_index.json";
constexpr const char* kEmbeddedModelId = "image-emoji-nano";
constexpr int kNewestSchema = 3;
constexpr size_t kMaxManifestBytes = size_t{1} << 20;
constexpr size_t kMaxListItems = 256;
constexpr size_t kMaxWordBytes = 128;
constexpr size_t kMaxScannedModels = 10'000;

// Pipelines that a diffusers folder can name, and the family that runs each.
struct PipelineClass {
  std::string_view class_name;
  std::string_view family;
};
constexpr PipelineClass kPipelineClasses[] = {{"Flux2KleinPipeline", "klein"}};

[[noreturn]] void fail_manifest(const std::string& source, const std::string& what) {
  throw IoError{{"manifest_invalid", source, source + ": " + what, ""}};
}

bool is_there(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

bool is_folder(const fs::path& path) {
  std::error_code ec;
  return fs::is_directory(path, ec);
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

std::string folder_name(const fs::path& folder) {
  const fs::path name = folder.filename();
  return printable(name.empty() ? folder.parent_path().filename().string() : name.string(),
                   kMaxWordBytes);
}

// Family and variant of a diffusers folder.
void read_model_index(const fs::path& path, Manifest& manifest) {
  const Json json = parse_json_file(path, kMaxManifestBytes);
  const std::string source = path.string();
  const std::string class_name = json_string_or(json, "_class_name", "", source);
  for (const PipelineClass& known : kPipelineClasses) {
    if (known.class_name != class_name) continue;
    manifest.family = known.family;
    if (manifest.variant.empty()) {
      manifest.variant = json_bool_or(json, "is_distilled", false, source) ? "distilled" : "base";
    }
    return;
  }
  throw UsageError{{"model_unsupported", source,
                    source + ": pipeline \"" + printable(class_name, 60) +
                        "\" is not one that this program runs",
                    "pipelines: Flux2KleinPipeline"}};
}

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
}

// Ids are folder names; anything else must not be joined to a path.
bool is_model_id(const std::string& text) {
  return !text.empty() && text.size() <= kMaxWordBytes && text[0] != '.' && text[0] != '-' &&
         std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// Visible folders of `models_dir`, sorted by name. A folder that cannot be read holds none.
std::vector<fs::path> model_folders(const fs::path& models_dir) {
  std::vector<fs::path> folders;
  std::error_code ec;
  fs::directory_iterator it(models_dir, fs::directory_options::skip_permission_denied, ec);
  for (; !ec && it != fs::directory_iterator() && folders.size() < kMaxScannedModels;
       it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (!name.empty() && name[0] != '.' && is_folder(it->path())) folders.push_back(it->path());
  }
  std::ranges::sort(folders);
  return folders;
}

std::optional<fs::path> installed_folder(const std::string& id, const fs::path& models_dir) {
  if (is_folder(models_dir / id)) return models_dir / id;
  for (const fs::path& folder : model_folders(models_dir)) {
    if (lower(folder.filename().string()) == lower(id)) return folder;
  }
  return std::nullopt;
}

[[noreturn]] void fail_not_installed(const std::string& requested, const fs::path& models_dir) {
  std::string known;
  for (const fs::path& folder : model_folders(models_dir)) {
    if (known.size() > 300) {
      known += ", ...";
      break;
    }
    known += (known.empty() ? "" : ", ") + folder_name(folder);
  }
  if (const auto embedded = embedded_model_dir();
      embedded && !installed_folder(kEmbeddedModelId, models_dir)) {
    known += (known.empty() ? "" : ", ") + std::string(kEmbeddedModelId);
  }
  throw UsageError{
      {"model_not_installed", "--model",
       "model \"" + printable(requested) + "\" is not installed: looked in " + models_dir.string(),
       known.empty() ? "give the path of a model's folder with --model"
                     : "installed: " + known + "; or give a folder's path"}};
}

// Rank of a model among the installed ones when none was asked for: lower is taken first.
int default_rank(const std::string& folder) {
  if (folder == "image-zimage-nano") return 0;
  return folder.rfind("image-klein-", 0) == 0 ? 1 : 2;
}

ModelRoot default_image_model(const fs::path& models_dir,
                              const std::vector<std::string>& families) {
  std::vector<ModelRoot> candidates;
  for (const fs::path& folder : model_folders(models_dir)) {
    try {
      ModelRoot model = open_model_root(folder);
      if (std::ranges::find(families, model.manifest.family) == families.end()) continue;
      candidates.push_back(std::move(model));
    } catch (const Error&) {
      // One broken folder must not hide the good ones; asking for it by name reports what is wrong.
    }
  }
  if (!candidates.empty()) {
    ModelRoot best = *std::ranges::min_element(candidates, {}, [](const ModelRoot& model) {
      const std::string name = model.path.filename().string();
      return std::pair(default_rank(name), name);
    });
    best.chosen_because = candidates.size() == 1
                              ? "the only image model installed in " + models_dir.string()
                              : "first of the " + std::to_string(candidates.size()) +
                                    " image models installed in " + models_dir.string();
    return best;
  }
  const auto embedded = embedded_model_dir();
  if (!embedded) {
    throw UsageError{{"model_not_installed", "--model",
                      "no image model is installed: looked in " + models_dir.string() +
                          ", and the one that ships with the program is not beside it",
                      "give the path of a model's folder with --model"}};
  }
  ModelRoot model = open_model_root(*embedded);
  model.chosen_because = "no other image model is installed in " + models_dir.string();
  return model;
}

}  // namespace

fs::path ModelRoot::component(const std::string& name) const {
  for (const auto& [component, relative] : component_paths) {
    if (component != name) continue;
    return fs::path(relative).is_absolute() ? fs::path(relative) : resolve_inside(path, relative);
  }
  return path / name;
}

ModelRoot open_model_root(const fs::path& folder) {
  std::error_code ec;
  ModelRoot model;
  model.path = fs::canonical(folder, ec);
  if (ec) {
    throw UsageError{{"model_not_found", "--model",
                      "cannot open model folder " + folder.string() + ": " + ec.message(), ""}};
  }
  if (!is_folder(model.path)) {
    throw UsageError{{"model_not_a_folder", "--model",
                      "a model is a folder, and " + folder.string() + " is a file",
                      "give the folder that holds model_index.json"}};
  }
  const fs::path manifest_path = model.path / kManifestName;
  const fs::path index_path = model.path / kModelIndexName;
  if (is_there(manifest_path)) read_manifest(manifest_path, model);
  Manifest& manifest = model.manifest;
  if (manifest.family.empty()) {
    if (!is_there(index_path)) {
      throw UsageError{{"not_a_model", "--model",
                        folder.string() + " is not a model: it holds neither a " + kManifestName +
                            " that names a family nor a " + kModelIndexName,
                        "give a managed model or a diffusers folder"}};
    }
    read_model_index(index_path, manifest);
  }
  // The link's own name, not its target's: managed models may be links into a cache of hashes.
  if (manifest.id.empty()) manifest.id = folder_name(fs::absolute(folder).lexically_normal());
  return model;
}

ModelRoot resolve_image_model(const std::string& requested, const fs::path& models_dir,
                              const std::vector<std::string>& families) {
  if (requested.empty()) return default_image_model(models_dir, families);
  if (requested.find('\0') != std::string::npos || requested.size() > 4096) {
    fail_not_installed(requested, models_dir);
  }
  const bool is_path = requested.find('/') != std::string::npos;
  if (is_folder(requested) || (is_path && is_there(requested))) return open_model_root(requested);
  const std::string id = trimmed(requested);
  if (is_path) {
    throw UsageError{{"model_not_found", "--model", "no such folder: " + printable(requested),
                      "give the folder of a model, or the id of an installed one"}};
  }
  if (!is_model_id(id)) fail_not_installed(requested, models_dir);
  if (const auto folder = installed_folder(id, models_dir)) return open_model_root(*folder);
  if (const auto embedded = embedded_model_dir(); embedded && lower(id) == kEmbeddedModelId) {
    return open_model_root(*embedded);
  }
  fail_not_installed(requested, models_dir);
}

std::optional<fs::path> embedded_model_dir() {
  const fs::path folder =
      executable_dir().parent_path() / "share" / "mere.run" / "models" / kEmbeddedModelId;
  if (!is_there(folder / kManifestName)) return std::nullopt;
  return folder;
}

}  // namespace mere
