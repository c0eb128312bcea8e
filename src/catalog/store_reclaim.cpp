// Space: how much models and payloads take, and giving it back.
#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <unistd.h>

#include "catalog/catalog.h"
#include "catalog/hub_cache.h"
#include "catalog/names.h"
#include "catalog/store.h"
#include "catalog/store_files.h"
#include "core/error.h"
#include "core/file_lock.h"

namespace mere {
namespace {

constexpr double kGraceSeconds = 3600;

// Who has which file: of every model in every place.
class Usage {
 public:
  explicit Usage(const StorePlaces& places) {
    for (const ModelFolder& folder : all_model_folders(places)) {
      std::vector<StoredFile> files = files_of(folder.path);
      for (const StoredFile& file : files) users_[file.identity][folder.path] = folder.id;
      models_.emplace_back(folder, std::move(files));
    }
  }

  const std::vector<std::pair<ModelFolder, std::vector<StoredFile>>>& models() const {
    return models_;
  }
  bool is_used(FileIdentity file) const { return users_.contains(file); }
  // Ids of the models other than the one in `folder` that have the file.
  std::set<std::string> others(FileIdentity file, const fs::path& folder) const {
    std::set<std::string> ids;
    const auto it = users_.find(file);
    if (it == users_.end()) return ids;
    for (const auto& [path, id] : it->second) {
      if (path != folder) ids.insert(id);
    }
    return ids;
  }

 private:
  std::vector<std::pair<ModelFolder, std::vector<StoredFile>>> models_;
  std::map<FileIdentity, std::map<fs::path, std::string>> users_;
};

// Blobs of the hub by what they are, for looking up what a link leads to.
std::map<fs::path, FileIdentity> blob_identities(const StoredRepository& repository) {
  std::map<fs::path, FileIdentity> identities;
  for (const StoredFile& file : files_of(repository.path / "blobs")) {
    identities[repository.path / "blobs" / file.path.filename()] = file.identity;
  }
  return identities;
}

// Folders that a pull or a removal left behind when it was ended: ".<id>.installing-<pid>" and
// ".<id>.removing-<pid>" of a process that is no more.
std::vector<fs::path> leftovers(const fs::path& models_dir, const std::string& id) {
  std::vector<fs::path> found;
  std::error_code ec;
  for (fs::directory_iterator it(models_dir, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name[0] != '.') continue;
    for (const std::string_view mark : {".installing-", ".removing-"}) {
      const size_t at = name.rfind(mark);
      if (at == std::string::npos || at == 0) continue;
      if (!id.empty() && lower(name.substr(1, at - 1)) != lower(id)) continue;
      const std::string pid = name.substr(at + mark.size());
      if (pid.empty() || pid.size() > 9 ||
          pid.find_first_not_of("0123456789") != std::string::npos) {
        continue;
      }
      if (::kill(std::stoi(pid), 0) == 0 && std::stoi(pid) != ::getpid()) continue;
      found.push_back(it->path());
    }
  }
  std::ranges::sort(found);
  return found;
}

int64_t own_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  for (const StoredFile& file : files_of(folder)) {
    if (file.target.empty()) bytes += file.bytes;
  }
  return bytes;
}

void remove_tree(const fs::path& folder) {
  std::error_code ec;
  fs::remove_all(folder, ec);  // removes links, not what they lead to
  if (ec) {
    throw IoError{{"file_unremovable", folder.string(),
                   folder.string() + ": cannot remove: " + ec.message(), ""}};
  }
}

// Parts of downloads of the repositories that `id` is pulled from.
int64_t remove_parts(const std::string& id, const fs::path& hub, RemoveResult& result) {
  const CatalogModel* known = find_catalog_model(id);
  if (known == nullptr) return 0;
  std::set<std::string> folders;
  for (const HubSource& source : known->sources) folders.insert(hub_folder_name(source.repository));
  int64_t bytes = 0;
  for (const StoredRepository& repository : scan_hub(hub)) {
    if (!folders.contains(repository.path.filename().string())) continue;
    for (const StoredBlob& part : repository.parts) {
      remove_hub_file(hub, part.path);
      bytes += part.bytes;
      ++result.partial_files;
    }
  }
  return bytes;
}

// Refuses a folder whose files are nowhere else, unless it was asked for twice.
void check_own_files(const ModelFolder& folder, const std::vector<StoredFile>& files) {
  for (const StoredFile& file : files) {
    if (!file.target.empty() || file.path.filename() == "mererun_model.json") continue;
    throw UsageError{{"model_has_own_files", "--force",
                      "model " + folder.id + " was not pulled: " + folder.path.string() +
                          " holds the files themselves, which would be lost",
                      "remove it with --force"}};
  }
}

// Payloads of a model that is gone: those that nobody has are removed, with the snapshots that are
// left without them.
void remove_payloads(const std::vector<StoredFile>& files, const fs::path& folder,
                     const Usage& usage, const fs::path& hub, const RemoveOptions& options,
                     RemoveResult& result) {
  const bool keep = options.keep_cache || is_shared_hub(hub);
  std::set<FileIdentity> unused;
  std::set<FileIdentity> counted;
  std::set<std::string> kept_for;
  for (const StoredFile& file : files) {
    if (file.target.empty() || !counted.insert(file.identity).second) continue;
    const std::set<std::string> others = usage.others(file.identity, folder);
    kept_for.insert(others.begin(), others.end());
    if (!others.empty() || keep) {
      result.kept_bytes += file.bytes;
    } else {
      unused.insert(file.identity);
    }
  }
  result.kept_for.assign(kept_for.begin(), kept_for.end());
  if (unused.empty()) return;
  for (const StoredRepository& repository : scan_hub(hub)) {
    const auto identities = blob_identities(repository);
    const auto goes = [&](const fs::path& blob) {
      const auto it = identities.find(blob);
      return it != identities.end() && unused.contains(it->second);
    };
    for (const HubSnapshot& snapshot : repository.snapshots) {
      // A snapshot that lacks a file is of no use to anybody; the blobs it shares stay.
      if (std::ranges::any_of(snapshot.blobs, goes)) remove_hub_snapshot(hub, snapshot);
    }
    for (const StoredBlob& blob : repository.blobs) {
      if (!goes(blob.path)) continue;
      remove_hub_file(hub, blob.path);
      result.reclaimed_bytes += blob.bytes;
    }
  }
}

}  // namespace

StorageReport measure_storage(const StorePlaces& places, const fs::path& hub) {
  const Usage usage(places);
  StorageReport report;
  report.models_dir = places.models_dir;
  report.hub = hub;
  std::set<FileIdentity> counted;
  for (const auto& [folder, files] : usage.models()) {
    ModelStorage model{folder.id, 0, 0};
    std::set<FileIdentity> own;
    for (const StoredFile& file : files) {
      if (!own.insert(file.identity).second) continue;
      model.bytes += file.bytes;
      if (usage.others(file.identity, folder.path).empty()) model.exclusive_bytes += file.bytes;
      if (counted.insert(file.identity).second) report.model_bytes += file.bytes;
    }
    report.models.push_back(model);
  }
  report.total_bytes = report.model_bytes;
  for (const StoredRepository& repository : scan_hub(hub)) {
    const auto identities = blob_identities(repository);
    for (const StoredBlob& part : repository.parts) report.partial_bytes += part.bytes;
    for (const StoredBlob& blob : repository.blobs) {
      report.payload_bytes += blob.bytes;
      const auto it = identities.find(blob.path);
      if (it == identities.end()) continue;
      if (!usage.is_used(it->second)) report.unreferenced_bytes += blob.bytes;
      if (counted.insert(it->second).second) report.total_bytes += blob.bytes;
    }
  }
  report.total_bytes += report.partial_bytes;
  return report;
}

RemoveResult remove_model(const std::string& requested, const StorePlaces& places,
                          const fs::path& hub, const RemoveOptions& options) {
  std::string id = trimmed(requested);
  if (const CatalogModel* known = find_catalog_model(id)) id = known->id;
  const FileLock lock = FileLock::acquire(storage_lock_file(hub));
  const auto folder = find_model_folder(id, places);
  if (folder && folder->place != ModelPlace::kStore) {
    throw UsageError{
        {"model_read_only", "ID",
         "model " + folder->id + " is in a read-only location: " + folder->path.string(),
         "see: mere.run model location list"}};
  }
  RemoveResult result;
  result.id = folder ? folder->id : id;
  if (folder) {
    result.was_installed = true;
    std::error_code ec;
    if (fs::is_symlink(folder->path, ec)) {
      // The user's own link to a folder elsewhere: only the link is ours to take.
      fs::remove(folder->path, ec);
    } else {
      const std::vector<StoredFile> files = files_of(folder->path);
      if (!options.force) check_own_files(*folder, files);
      const Usage usage(places);
      result.reclaimed_bytes += own_bytes(folder->path);
      // Out of sight at once, then taken apart: the id is either whole or absent.
      const fs::path hidden =
          places.models_dir / ("." + folder->id + ".removing-" + std::to_string(::getpid()));
      fs::rename(folder->path, hidden, ec);
      if (ec) {
        throw IoError{{"file_unremovable", folder->path.string(),
                       folder->path.string() + ": cannot remove: " + ec.message(), ""}};
      }
      remove_tree(hidden);
      remove_payloads(files, folder->path, usage, hub, options, result);
    }
  }
  const int64_t part_bytes = remove_parts(id, hub, result);
  bool had_leftovers = false;
  if (is_model_id(id)) {
    for (const fs::path& path : leftovers(places.models_dir, id)) {
      had_leftovers = true;
      remove_tree(path);
    }
  }
  if (!folder && result.partial_files == 0 && !had_leftovers) {
    throw UsageError{{"model_not_installed", "ID",
                      "model \"" + printable(id) +
                          "\" is not installed, and no part of it: looked "
                          "in " +
                          places.models_dir.string(),
                      "see: mere.run model list"}};
  }
  result.reclaimed_bytes += part_bytes;
  return result;
}

GcResult collect_garbage(const StorePlaces& places, const fs::path& hub, bool force) {
  std::optional<FileLock> lock;
  if (force) lock.emplace(FileLock::acquire(storage_lock_file(hub)));
  const Usage usage(places);
  GcResult result;
  result.shared = is_shared_hub(hub);
  const auto add = [&](const char* kind, const fs::path& path, int64_t bytes, double age) {
    if (age < kGraceSeconds) {
      ++result.young;
      return false;
    }
    result.items.push_back({kind, path, bytes});
    result.bytes += bytes;
    return true;
  };
  for (const StoredRepository& repository : scan_hub(hub)) {
    for (const StoredBlob& part : repository.parts) {
      if (add("part", part.path, part.bytes, part.age_seconds) && force) {
        remove_hub_file(hub, part.path);
      }
    }
    if (result.shared) continue;
    const auto identities = blob_identities(repository);
    const auto is_used = [&](const fs::path& blob) {
      const auto it = identities.find(blob);
      return it != identities.end() && usage.is_used(it->second);
    };
    std::set<fs::path> kept;  // by snapshots that stay
    for (const HubSnapshot& snapshot : repository.snapshots) {
      const bool stays = std::ranges::any_of(snapshot.blobs, is_used) ||
                         !add("snapshot", snapshot.path, 0, snapshot.age_seconds);
      if (stays) {
        kept.insert(snapshot.blobs.begin(), snapshot.blobs.end());
      } else if (force) {
        remove_hub_snapshot(hub, snapshot);
      }
    }
    for (const StoredBlob& blob : repository.blobs) {
      if (is_used(blob.path) || kept.contains(blob.path)) continue;
      if (add("blob", blob.path, blob.bytes, blob.age_seconds) && force) {
        remove_hub_file(hub, blob.path);
      }
    }
  }
  for (const fs::path& path : leftovers(places.models_dir, "")) {
    const int64_t bytes = own_bytes(path);
    result.items.push_back({"installing", path, bytes});
    result.bytes += bytes;
    if (force) remove_tree(path);
  }
  result.removed = force;
  return result;
}

}  // namespace mere
