#include "catalog/hub_store.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "catalog/hub_cache.h"
#include "core/error.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr size_t kMaxEntries = 100'000;
constexpr size_t kMaxRefBytes = 256;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

double age_seconds(const fs::path& path) {
  std::error_code ec;
  const auto time = fs::last_write_time(path, ec);
  if (ec) return 0;
  return std::chrono::duration<double>(fs::file_time_type::clock::now() - time).count();
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end && entries.size() < kMaxEntries;
       it.increment(ec)) {
    entries.push_back(it->path());
  }
  std::ranges::sort(entries);
  return entries;
}

bool is_real_folder(const fs::path& path) {
  std::error_code ec;
  return fs::symlink_status(path, ec).type() == fs::file_type::directory;
}

// Files below `folder`, links not followed.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(folder, ec), end;
       !ec && it != end && files.size() < kMaxEntries; it.increment(ec)) {
    std::error_code status;
    if (it->symlink_status(status).type() != fs::file_type::directory) files.push_back(it->path());
  }
  return files;
}

HubSnapshot scan_snapshot(const fs::path& path, const fs::path& repository) {
  HubSnapshot snapshot{path, age_seconds(path), {}};
  const std::string inside = (repository / "blobs").string() + "/";
  for (const fs::path& file : files_below(path)) {
    std::error_code ec;
    const fs::path target = fs::read_symlink(file, ec);
    if (ec) continue;
    const fs::path blob = (file.parent_path() / target).lexically_normal();
    if (blob.string().starts_with(inside)) snapshot.blobs.push_back(blob);
  }
  return snapshot;
}

void remove_path(const fs::path& path) {
  std::error_code ec;
  fs::remove(path, ec);
  if (ec) {
    throw IoError{{"file_unremovable", path.string(),
                   path.string() + ": cannot remove: " + ec.message(), ""}};
  }
}

void remove_empty_folders(const fs::path& hub, fs::path folder) {
  const std::string inside = hub.string() + "/";
  while (folder.string().starts_with(inside)) {
    std::error_code ec;
    // The record of checked blobs is of no use once there are none.
    const std::vector<fs::path> left = entries_of(folder);
    if (left.size() == 1 && left[0].filename() == kVerifiedName) fs::remove(left[0], ec);
    if (!fs::remove(folder, ec) || ec) return;
    folder = folder.parent_path();
  }
}

}  // namespace

bool is_shared_hub(const fs::path& hub) {
  std::vector<fs::path> shared;
  if (const std::string path = variable("HF_HUB_CACHE"); !path.empty()) shared.emplace_back(path);
  if (const std::string path = variable("HF_HOME"); !path.empty()) {
    shared.push_back(fs::path(path) / "hub");
  }
  const std::string cache = variable("XDG_CACHE_HOME");
  shared.push_back((cache.empty() ? fs::path(variable("HOME")) / ".cache" : fs::path(cache)) /
                   "huggingface/hub");
  std::error_code ec;
  const fs::path real = fs::weakly_canonical(hub, ec);
  return std::ranges::any_of(shared, [&](const fs::path& path) {
    std::error_code same;
    return fs::weakly_canonical(path, same) == real;
  });
}

std::vector<StoredRepository> scan_hub(const fs::path& hub) {
  std::vector<StoredRepository> repositories;
  for (const fs::path& path : entries_of(hub)) {
    if (!path.filename().string().starts_with("models--") || !is_real_folder(path)) continue;
    StoredRepository repository{path, {}, {}, {}};
    for (const fs::path& blob : entries_of(path / "blobs")) {
      std::error_code ec;
      if (fs::symlink_status(blob, ec).type() != fs::file_type::regular) continue;
      const bool is_part = blob.filename().string().find(".incomplete") != std::string::npos;
      (is_part ? repository.parts : repository.blobs)
          .push_back({blob, static_cast<int64_t>(fs::file_size(blob, ec)), age_seconds(blob)});
    }
    for (const fs::path& snapshot : entries_of(path / "snapshots")) {
      if (is_real_folder(snapshot)) repository.snapshots.push_back(scan_snapshot(snapshot, path));
    }
    repositories.push_back(std::move(repository));
  }
  return repositories;
}

void remove_hub_file(const fs::path& hub, const fs::path& file) {
  remove_path(file);
  remove_empty_folders(hub, file.parent_path());
}

void remove_hub_snapshot(const fs::path& hub, const HubSnapshot& snapshot) {
  const fs::path repository = snapshot.path.parent_path().parent_path();
  for (const fs::path& ref : files_below(repository / "refs")) {
    try {
      const std::string commit = read_file(ref, kMaxRefBytes);
      if (commit.starts_with(snapshot.path.filename().string())) remove_hub_file(hub, ref);
    } catch (const IoError&) {
      // A ref that cannot be read names nothing.
    }
  }
  for (const fs::path& file : files_below(snapshot.path)) remove_hub_file(hub, file);
  std::error_code ec;
  fs::remove_all(snapshot.path, ec);
  remove_empty_folders(hub, snapshot.path.parent_path());
}

}  // namespace mere
