#include "catalog/store_places.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "catalog/names.h"
#include "core/error.h"
#include "core/file_lock.h"
#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr size_t kMaxLocationsBytes = size_t{4} << 20;
constexpr size_t kMaxLocations = 256;
constexpr size_t kMaxScannedModels = 10'000;
constexpr size_t kMaxPathBytes = 4096;

bool is_folder(const fs::path& path) {
  std::error_code ec;
  return fs::is_directory(path, ec);
}

const Json* list_of(const Json& json, const char* key, const std::string& source) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return nullptr;
  if (!it->is_array() || it->size() > kMaxLocations) {
    throw IoError{
        {"locations_invalid", source,
         source + ": \"" + key + "\" is not a list of at most " + std::to_string(kMaxLocations),
         "correct the file, or remove it to start without locations"}};
  }
  return &*it;
}

fs::path absolute_path(const Json& item, const std::string& source) {
  const std::string path = json_string_or(item, "path", "", source);
  if (path.size() > kMaxPathBytes || path.find('\0') != std::string::npos ||
      !fs::path(path).is_absolute()) {
    throw IoError{{"locations_invalid", source, source + ": a location is no absolute path", ""}};
  }
  return path;
}

// Visible folders of `root`, sorted by name.
std::vector<fs::path> visible_folders(const fs::path& root) {
  std::vector<fs::path> folders;
  std::error_code ec;
  fs::directory_iterator it(root, fs::directory_options::skip_permission_denied, ec);
  for (; !ec && it != fs::directory_iterator() && folders.size() < kMaxScannedModels;
       it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (!name.empty() && name[0] != '.' && is_folder(it->path())) folders.push_back(it->path());
  }
  std::ranges::sort(folders);
  return folders;
}

void check_path(const fs::path& path) {
  try {
    if (Json(path.string()).dump().size() <= kMaxPathBytes) return;
  } catch (const Json::type_error&) {
    throw UsageError{{"path_not_utf8", "PATH", path.string() + ": the path is not UTF-8",
                      "rename the folder, or reach it through a link"}};
  }
  throw UsageError{{"path_too_long", "PATH", path.string() + ": the path is too long", ""}};
}

// What is written must be readable again.
void check_locations(const ModelLocations& locations) {
  if (std::max(locations.roots.size(), locations.bindings.size()) > kMaxLocations) {
    throw UsageError{{"too_many_locations", "PATH",
                      "there can be no more than " + std::to_string(kMaxLocations) + " locations",
                      "put the models into one folder"}};
  }
  for (const fs::path& root : locations.roots) check_path(root);
  for (const ModelBinding& binding : locations.bindings) check_path(binding.path);
}

}  // namespace

fs::path locations_path() { return app_support_dir() / "model_locations.json"; }

ModelLocations read_locations() {
  const fs::path path = locations_path();
  std::error_code ec;
  if (!fs::exists(path, ec)) return {};
  const std::string source = path.string();
  const Json json = parse_json_file(path, kMaxLocationsBytes);
  json_int_or(json, "version", 1, 1, 1, source);
  ModelLocations locations;
  if (const Json* roots = list_of(json, "roots", source)) {
    for (const Json& item : *roots) locations.roots.push_back(absolute_path(item, source));
  }
  if (const Json* bindings = list_of(json, "bindings", source)) {
    for (const Json& item : *bindings) {
      const std::string id = json_string_or(item, "id", "", source);
      if (!is_model_id(id)) {
        throw IoError{{"locations_invalid", source,
                       source + ": a binding is of no legal id: " + printable(id, 80), ""}};
      }
      locations.bindings.push_back(
          {id, absolute_path(item, source), json_bool_or(item, "terms_accepted", false, source)});
    }
  }
  return locations;
}

void write_locations(const ModelLocations& locations) {
  Json json = {{"version", 1}, {"roots", Json::array()}, {"bindings", Json::array()}};
  for (const fs::path& root : locations.roots) json["roots"].push_back({{"path", root.string()}});
  for (const ModelBinding& binding : locations.bindings) {
    json["bindings"].push_back({{"id", binding.id},
                                {"path", binding.path.string()},
                                {"terms_accepted", binding.terms_accepted}});
  }
  write_file_atomic(locations_path(),
                    json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void change_locations(const std::function<void(ModelLocations&)>& change) {
  const FileLock lock = FileLock::acquire(locations_path().string() + ".lock");
  const ModelLocations before = read_locations();
  ModelLocations locations = before;
  change(locations);
  if (locations == before) return;
  check_locations(locations);
  write_locations(locations);
}

StorePlaces store_places(const fs::path& models_dir) {
  StorePlaces places;
  if (!models_dir.empty()) {
    places.models_dir = models_dir;
    return places;
  }
  places.models_dir = default_models_dir();
  const char* variable = std::getenv("MERERUN_MODELS_DIR");
  if (variable != nullptr && *variable != '\0') return places;
  places.locations = read_locations();
  places.locations_used = true;
  return places;
}

std::string_view place_name(ModelPlace place) {
  switch (place) {
    case ModelPlace::kStore:
      return "store";
    case ModelPlace::kBinding:
      return "binding";
    case ModelPlace::kLocation:
      return "location";
    case ModelPlace::kEmbedded:
      return "embedded";
  }
  return "store";
}

std::vector<ModelFolder> model_folders(const StorePlaces& places) {
  std::vector<ModelFolder> folders;
  std::set<std::string> ids;
  const auto add = [&](std::string id, const fs::path& path, ModelPlace place) {
    if (ids.insert(lower(id)).second) folders.push_back({std::move(id), path, place});
  };
  // Two folders of the store whose names differ in case only are both reachable, by exact name.
  for (const fs::path& path : visible_folders(places.models_dir)) {
    ids.insert(lower(path.filename().string()));
    folders.push_back({path.filename().string(), path, ModelPlace::kStore});
  }
  for (const ModelBinding& binding : places.locations.bindings) {
    if (is_folder(binding.path)) add(binding.id, binding.path, ModelPlace::kBinding);
  }
  for (const fs::path& root : places.locations.roots) {
    for (const fs::path& path : visible_folders(root)) {
      add(path.filename().string(), path, ModelPlace::kLocation);
    }
  }
  return folders;
}

std::vector<ModelFolder> all_model_folders(const StorePlaces& places) {
  std::vector<ModelFolder> folders;
  std::set<fs::path> paths;
  const auto add = [&](const fs::path& path, const std::string& id, ModelPlace place) {
    std::error_code ec;
    const fs::path real = fs::weakly_canonical(path, ec);
    if (paths.insert(ec ? path : real).second) folders.push_back({id, path, place});
  };
  const auto add_below = [&](const fs::path& root, ModelPlace place) {
    for (const fs::path& path : visible_folders(root)) add(path, path.filename().string(), place);
  };
  add_below(places.models_dir, ModelPlace::kStore);
  add_below(default_models_dir(), ModelPlace::kStore);
  add_below(app_support_dir() / "models", ModelPlace::kStore);
  const ModelLocations locations = read_locations();
  for (const ModelBinding& binding : locations.bindings) {
    if (is_folder(binding.path)) add(binding.path, binding.id, ModelPlace::kBinding);
  }
  for (const fs::path& root : locations.roots) add_below(root, ModelPlace::kLocation);
  return folders;
}

std::optional<ModelFolder> find_model_folder(const std::string& id, const StorePlaces& places) {
  if (!is_model_id(id)) return std::nullopt;
  // The usual case, without reading the folder.
  if (is_folder(places.models_dir / id)) {
    return ModelFolder{id, places.models_dir / id, ModelPlace::kStore};
  }
  const std::string wanted = lower(id);
  for (ModelFolder& folder : model_folders(places)) {
    if (lower(folder.id) == wanted) return std::move(folder);
  }
  return std::nullopt;
}

}  // namespace mere
