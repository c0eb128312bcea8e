// Where models are looked for: the store (the models folder), then single folders that the user
// bound to an id, then folders of models that the user named. The latter two are read only: nothing
// there is ever changed or removed.
//
//   const StorePlaces places = store_places({});
//   if (const auto found = find_model_folder("image-klein-nano", places)) open_model_root(*found);
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"

namespace mere {

struct ModelBinding {
  std::string id;
  fs::path path;                // folder of the model
  bool terms_accepted = false;  // of a restricted id

  bool operator==(const ModelBinding&) const = default;
};

struct ModelLocations {
  std::vector<fs::path> roots;
  std::vector<ModelBinding> bindings;

  bool operator==(const ModelLocations&) const = default;
};

struct StorePlaces {
  fs::path models_dir;
  ModelLocations locations;
  bool locations_used = false;  // false: a models folder was named, which turns them off
};

// <app support>/model_locations.json. Missing: none. IoError when it is damaged: a location that
// silently disappears would look like a lost model.
fs::path locations_path();
ModelLocations read_locations();
void write_locations(const ModelLocations& locations);

// Reads, changes and writes the locations with no other process between. `change` may throw;
// nothing is written then, nor when it changes nothing. UsageError when there would be too many or
// when a path is no UTF-8, which the file cannot hold.
void change_locations(const std::function<void(ModelLocations&)>& change);

// `models_dir` names the store (--models-root); empty: MERERUN_MODELS_DIR, else the default store
// together with the locations.
StorePlaces store_places(const fs::path& models_dir);

enum class ModelPlace { kStore, kBinding, kLocation, kEmbedded };
std::string_view place_name(ModelPlace place);

struct ModelFolder {
  std::string id;  // the folder's name, or what it is bound to
  fs::path path;
  ModelPlace place = ModelPlace::kStore;
};

// Every folder that may hold a model, in order of places and sorted by name inside one. An id that
// an earlier place has hides later ones. Hidden folders and such that cannot be read are left out.
std::vector<ModelFolder> model_folders(const StorePlaces& places);

// Every folder anywhere that may link to payloads: those above, such as are hidden by an earlier
// id, and those of the default store and of all locations when another models folder was named.
// What none of them has is nobody's.
std::vector<ModelFolder> all_model_folders(const StorePlaces& places);

// By id, exact, else without regard to letter case; nullopt when there is none.
std::optional<ModelFolder> find_model_folder(const std::string& id, const StorePlaces& places);

}  // namespace mere
