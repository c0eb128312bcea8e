#include "catalog/model_root.h"

#include <algorithm>

#include "catalog/catalog.h"
#include "catalog/model_check.h"
#include "catalog/model_manifest.h"
#include "catalog/names.h"
#include "catalog/recognise.h"
#include "catalog/store_places.h"
#include "core/error.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxListedBytes = 300;

bool is_there(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

bool is_folder(const fs::path& path) {
  std::error_code ec;
  return fs::is_directory(path, ec);
}

std::string folder_name(const fs::path& folder) {
  const fs::path name = folder.filename();
  return printable(name.empty() ? folder.parent_path().filename().string() : name.string(),
                   kMaxNameBytes);
}

// What to do about a model that is not there: one that the catalog knows can be pulled.
std::string installed_hint(const std::string& requested, const StorePlaces& places) {
  const CatalogModel* known_model = find_catalog_model(requested);
  if (known_model != nullptr && !known_model->sources.empty()) {
    return "mere.run model pull " + known_model->id;
  }
  std::string known;
  for (const ModelFolder& folder : model_folders(places)) {
    if (known.size() > kMaxListedBytes) {
      known += ", ...";
      break;
    }
    known += (known.empty() ? "" : ", ") + printable(folder.id, kMaxNameBytes);
  }
  if (embedded_model_dir() && !find_model_folder(kEmbeddedModelId, places)) {
    known += (known.empty() ? "" : ", ") + std::string(kEmbeddedModelId);
  }
  return known.empty() ? "give the path of a model's folder with --model"
                       : "installed: " + known + "; or give a folder's path";
}

[[noreturn]] void fail_not_installed(const std::string& requested, const StorePlaces& places) {
  throw UsageError{{"model_not_installed", "--model",
                    "model \"" + printable(requested) + "\" is not installed: looked in " +
                        places.models_dir.string(),
                    installed_hint(requested, places)}};
}

ModelRoot open_whole_model(const fs::path& folder) {
  ModelRoot model = open_model_root(folder);
  check_installed_files(model);
  return model;
}

// Rank of a model among the installed ones when none was asked for: lower is taken first.
int default_rank(const std::string& folder) {
  if (folder == "image-zimage-nano") return 0;
  return folder.rfind("image-klein-", 0) == 0 ? 1 : 2;
}

ModelRoot default_image_model(const StorePlaces& places, const std::vector<std::string>& families) {
  std::vector<std::pair<std::string, ModelRoot>> candidates;
  for (const ModelFolder& folder : model_folders(places)) {
    try {
      ModelRoot model = open_whole_model(folder.path);
      if (std::ranges::find(families, model.manifest.family) == families.end()) continue;
      candidates.emplace_back(folder.id, std::move(model));
    } catch (const Error&) {
      // One broken folder must not hide the good ones; asking for it by name reports what is wrong.
    }
  }
  const std::string dir = places.models_dir.string();
  if (!candidates.empty()) {
    ModelRoot best = std::ranges::min_element(candidates, {}, [](const auto& candidate) {
                       return std::pair(default_rank(candidate.first), candidate.first);
                     })->second;
    best.chosen_because = candidates.size() == 1
                              ? "the only image model installed in " + dir
                              : "first of the " + std::to_string(candidates.size()) +
                                    " image models installed in " + dir;
    return best;
  }
  const auto embedded = embedded_model_dir();
  if (!embedded) {
    throw UsageError{{"model_not_installed", "--model",
                      "no image model is installed: looked in " + dir +
                          ", and the one that ships with the program is not beside it",
                      "give the path of a model's folder with --model"}};
  }
  ModelRoot model = open_model_root(*embedded);
  model.chosen_because = "no other image model is installed in " + dir;
  return model;
}

// Family and variant of a folder whose manifest does not tell them, from its own files.
void recognise(const fs::path& folder, ModelRoot& model) {
  const auto recognised = recognise_model(model.path);
  if (!recognised) {
    throw UsageError{{"not_a_model", "--model",
                      folder.string() + " is not a model: it holds neither a " + kManifestName +
                          " that names a family nor files of a layout that is known",
                      "give a managed model, or a folder in the layout of diffusers or mflux"}};
  }
  if (recognised->family.empty()) {
    throw UsageError{{"model_unsupported", model.path.string(),
                      model.path.string() + ": pipeline \"" + recognised->class_name +
                          "\" is not one that this program knows",
                      "see: mere.run model capabilities"}};
  }
  model.manifest.family = recognised->family;
  if (model.manifest.variant.empty()) model.manifest.variant = recognised->variant;
}

}  // namespace

fs::path ModelRoot::component(const std::string& name) const {
  for (const auto& [component, relative] : component_paths) {
    if (component != name) continue;
    return fs::path(relative).is_absolute() ? fs::path(relative) : resolve_inside(path, relative);
  }
  return component_folder(path, name);
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
  if (is_there(manifest_path)) read_manifest(manifest_path, model);
  if (model.manifest.family.empty()) recognise(folder, model);
  // The link's own name, not its target's: managed models may be links into a cache of hashes.
  if (model.manifest.id.empty()) {
    model.manifest.id = folder_name(fs::absolute(folder).lexically_normal());
  }
  return model;
}

ModelRoot resolve_image_model(const std::string& requested, const fs::path& models_dir,
                              const std::vector<std::string>& families) {
  if (requested.empty()) return default_image_model(store_places(models_dir), families);
  const bool is_text = requested.find('\0') == std::string::npos && requested.size() <= 4096;
  const bool has_slash = requested.find('/') != std::string::npos;
  if (is_text && (is_folder(requested) || (has_slash && is_there(requested)))) {
    return open_whole_model(requested);
  }
  const StorePlaces places = store_places(models_dir);
  if (!is_text) fail_not_installed(requested, places);
  std::string id = trimmed(requested);
  const CatalogModel* known = find_catalog_model(id);
  if (has_slash) {
    // The only text with a slash that is no path: an upstream repository.
    if (known == nullptr) {
      throw UsageError{{"model_not_found", "--model", "no such folder: " + printable(requested),
                        "give the folder of a model, or the id of an installed one"}};
    }
    id = known->id;
  }
  if (const auto folder = find_model_folder(id, places)) {
    ModelRoot model = open_whole_model(folder->path);
    if (folder->place == ModelPlace::kBinding) model.manifest.id = folder->id;
    return model;
  }
  if (const auto embedded = embedded_model_dir(); embedded && lower(id) == kEmbeddedModelId) {
    return open_model_root(*embedded);
  }
  fail_not_installed(requested, places);
}

std::optional<fs::path> embedded_model_dir() {
  const fs::path folder =
      executable_dir().parent_path() / "share" / "mere.run" / "models" / kEmbeddedModelId;
  if (!is_there(folder / kManifestName)) return std::nullopt;
  return folder;
}

}  // namespace mere
