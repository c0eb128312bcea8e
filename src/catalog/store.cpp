#include "catalog/store.h"

#include <algorithm>

#include "catalog/catalog.h"
#include "catalog/file_hash.h"
#include "catalog/model_manifest.h"
#include "catalog/names.h"
#include "catalog/recognise.h"
#include "catalog/store_files.h"
#include "core/error.h"

namespace mere {
namespace {

bool is_folder(const fs::path& path) {
  std::error_code ec;
  return fs::is_directory(path, ec);
}

StoredModel look_at(const ModelFolder& folder, Measure measure) {
  StoredModel model;
  model.id = folder.id;
  model.path = folder.path;
  model.place = folder.place;
  model.check = check_model(folder.path);
  const CatalogModel* known = find_catalog_model(folder.id);
  if (known != nullptr) model.category = known->category;
  try {
    const ModelRoot root = open_model_root(folder.path);
    model.family = root.manifest.family;
    model.manifest_id = root.manifest.id;
    if (!root.files.empty()) {
      int64_t bytes = 0;
      for (const InstalledFile& file : root.files) {
        bytes = file.bytes > INT64_MAX - bytes ? INT64_MAX : bytes + file.bytes;
      }
      model.bytes = bytes;
    }
    if (model.category.empty()) {
      if (const CatalogModel* upstream = find_catalog_model(root.manifest.id)) {
        model.category = upstream->category;
      } else if (const auto recognised = recognise_model(root.path)) {
        model.category = recognised->category;
      }
    }
  } catch (const Error&) {
    // `check` says what is wrong.
  }
  if (measure == Measure::kYes || !model.bytes) {
    int64_t bytes = 0;
    for (const StoredFile& file : files_of(folder.path)) bytes += file.bytes;
    model.bytes = bytes;
  }
  return model;
}

}  // namespace

std::vector<StoredModel> list_models(const StorePlaces& places, Measure measure) {
  std::vector<StoredModel> models;
  bool has_embedded = false;
  for (const ModelFolder& folder : model_folders(places)) {
    has_embedded = has_embedded || lower(folder.id) == kEmbeddedModelId;
    models.push_back(look_at(folder, measure));
  }
  if (const auto embedded = embedded_model_dir(); embedded && !has_embedded) {
    models.push_back(look_at({kEmbeddedModelId, *embedded, ModelPlace::kEmbedded}, measure));
  }
  return models;
}

std::optional<StoredModel> find_model(const std::string& id_or_path, const StorePlaces& places,
                                      Measure measure) {
  if (id_or_path.empty() || id_or_path.size() > 4096 ||
      id_or_path.find('\0') != std::string::npos) {
    return std::nullopt;
  }
  if (is_folder(id_or_path)) {
    const fs::path path = fs::absolute(id_or_path).lexically_normal();
    const fs::path name = path.has_filename() ? path.filename() : path.parent_path().filename();
    return look_at({name.string(), path, ModelPlace::kLocation}, measure);
  }
  std::string id = trimmed(id_or_path);
  if (const CatalogModel* known = find_catalog_model(id)) id = known->id;
  if (const auto folder = find_model_folder(id, places)) return look_at(*folder, measure);
  if (const auto embedded = embedded_model_dir(); embedded && lower(id) == kEmbeddedModelId) {
    return look_at({kEmbeddedModelId, *embedded, ModelPlace::kEmbedded}, measure);
  }
  return std::nullopt;
}

VerifyResult verify_model(const StoredModel& model, const Progress& progress,
                          const VerifyReport& report) {
  VerifyResult result{model.id, model.path, "verified", 0, 0, {}};
  const auto failed = [&](const std::string& file, const std::string& problem) {
    result.problems.push_back({file, problem});
    result.status = "failed";
  };
  try {
    const ModelRoot root = open_model_root(model.path);
    int64_t total = 0;
    for (const InstalledFile& file : root.files) total += std::min(file.bytes, INT64_MAX - total);
    int64_t done = 0;
    for (const InstalledFile& file : root.files) {
      progress.check_cancelled();
      ++result.files;
      try {
        const fs::path path = installed_file(root, file.path);
        std::error_code ec;
        if (!fs::exists(path, ec)) {
          failed(file.path, "is missing");
          continue;
        }
        const auto bytes = static_cast<int64_t>(fs::file_size(path, ec));
        if (!ec && bytes != file.bytes) {
          failed(file.path, "has " + std::to_string(bytes) + " bytes instead of " +
                                std::to_string(file.bytes));
          continue;
        }
        const std::string hash = hash_like(file.hash, path, &progress, [&](int64_t hashed) {
          done += hashed;
          if (report) report(file.path, done, total);
        });
        result.bytes += bytes;
        if (hash != file.hash) failed(file.path, "holds something else than was installed");
      } catch (const IoError& error) {
        failed(file.path, error.info().message);
      }
    }
    if (!root.files.empty()) return result;
  } catch (const Cancelled&) {
    throw;
  } catch (const Error& error) {
    failed("", error.info().message);
    return result;
  }
  if (model.check.state == ModelState::kComplete) {
    result.status = "unhashed";
  } else {
    failed(model.check.file, model.check.problem);
  }
  return result;
}

std::vector<RepairItem> repair_manifests(const StorePlaces& places, bool dry_run) {
  std::vector<RepairItem> items;
  for (const ModelFolder& folder : model_folders(places)) {
    if (folder.place != ModelPlace::kStore) continue;
    RepairItem item{folder.id, folder.path, "present", "", ""};
    const fs::path manifest = folder.path / kManifestName;
    std::error_code ec;
    // A link to nothing counts as a manifest: writing through it would end somewhere else.
    const bool is_there = fs::symlink_status(manifest, ec).type() != fs::file_type::not_found;
    if (!is_there) {
      try {
        const auto recognised = recognise_model(folder.path);
        if (!recognised || recognised->family.empty()) {
          item.action = "unrecognised";
        } else {
          item.family = recognised->family;
          item.action = dry_run ? "would_write" : "written";
          const std::string text =
              manifest_of(folder.path, folder.id, *recognised, recognise_weights(folder.path));
          if (!dry_run) write_file_atomic(manifest, text);
        }
      } catch (const Error& error) {
        item.action = "failed";
        item.problem = error.info().message;
      }
    }
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace mere
