#include "catalog/hub_cache.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "catalog/hub.h"
#include "catalog/names.h"
#include "core/error.h"
#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr size_t kMaxRecordBytes = size_t{16} << 20;
constexpr std::string_view kPartEnd = ".incomplete";

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

[[noreturn]] void fail_errno(const fs::path& path, const std::string& verb) {
  const int reason = errno;
  throw IoError{{reason == ENOSPC ? "disk_full" : "file_unwritable", path.string(),
                 path.string() + ": " + verb + ": " + std::strerror(reason), ""}};
}

fs::path variable_path(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? fs::path() : fs::absolute(value);
}

}  // namespace

fs::path hub_cache_dir() {
  if (const fs::path chosen = variable_path("MERERUN_HUB_CACHE"); !chosen.empty()) return chosen;
  if (const fs::path home = variable_path("MERERUN_MODEL_CACHE_HOME"); !home.empty()) {
    return home / "hub";
  }
  // The nearest folder above that exists must take new ones.
  fs::path above = app_support_dir();
  std::error_code ec;
  while (!fs::exists(above, ec) && above.has_relative_path()) above = above.parent_path();
  return ::access(above.c_str(), W_OK | X_OK) == 0 ? app_support_dir() / "hub"
                                                   : user_cache_dir() / "hub";
}

fs::path storage_lock_file(const fs::path& hub_dir) { return hub_dir / ".mererun.lock"; }

std::string hub_folder_name(const std::string& repository) {
  std::string name = "models--";
  for (const char c : repository) name += c == '/' ? std::string("--") : std::string(1, c);
  return name;
}

HubRepository::HubRepository(const fs::path& hub_dir, const std::string& repository)
    : hub_dir_(hub_dir) {
  if (!is_repository(repository)) {
    throw UsageError{{"repository_invalid", repository,
                      printable(repository) + " is no repository \"owner/name\"", ""}};
  }
  name_ = hub_folder_name(repository);
  folder_ = hub_dir / name_;
}

fs::path HubRepository::lock_file() const {
  return hub_dir_ / ".locks" / (name_ + ".mererun.lock");
}

fs::path HubRepository::part(const std::string& etag) const {
  return folder_ / "blobs" / (etag + std::string(kPartEnd));
}

fs::path HubRepository::part_note(const std::string& etag) const {
  return folder_ / "blobs" / (etag + std::string(kPartEnd) + ".json");
}

bool HubRepository::has_blob(const std::string& etag, int64_t size) const {
  const auto state = state_of(blob(etag));
  return state && state->size == size;
}

int64_t HubRepository::part_bytes(const std::string& etag, int64_t size) const {
  const auto state = state_of(part(etag));
  return state && state->size <= size ? state->size : 0;
}

std::optional<HubRepository::Verified> HubRepository::state_of(const fs::path& file) {
  struct stat st {};
  if (::lstat(file.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return std::nullopt;
  return Verified{int64_t{st.st_size}, static_cast<int64_t>(st.st_ino), nanoseconds(st.st_mtim),
                  nanoseconds(st.st_ctim), ""};
}

// Whatever is wrong with the record, the answer is an empty one.
void HubRepository::load_verified() {
  if (std::exchange(loaded_, true)) return;
  try {
    const std::string source = (folder_ / kVerifiedName).string();
    const Json json = parse_json_file(source, kMaxRecordBytes);
    for (const auto& item : json.at("blobs").items()) {
      const auto number = [&](const char* key) {
        return json_int(item.value(), key, INT64_MIN, INT64_MAX, source);
      };
      Verified read{number("size"), number("inode"), number("modified_ns"), number("changed_ns"),
                    json_string_or(item.value(), "sha256", "", source)};
      if (is_blob_name(item.key()) && is_blob_name(read.sha256)) {
        verified_[item.key()] = std::move(read);
      }
    }
  } catch (const std::exception&) {
    verified_.clear();
  }
}

std::optional<std::string> HubRepository::verified_sha256(const std::string& etag) {
  load_verified();
  const auto known = verified_.find(etag);
  const auto now = state_of(blob(etag));
  if (known == verified_.end() || !now) return std::nullopt;
  const Verified& then = known->second;
  const bool same = then.size == now->size && then.inode == now->inode &&
                    then.modified_ns == now->modified_ns && then.changed_ns == now->changed_ns;
  return same ? std::optional(then.sha256) : std::nullopt;
}

void HubRepository::set_verified(const std::string& etag, const std::string& sha256) {
  load_verified();
  auto state = state_of(blob(etag));
  if (!state) return;
  state->sha256 = sha256;
  verified_[etag] = std::move(*state);
  changed_ = true;
}

void HubRepository::forget_verified(const std::string& etag) {
  load_verified();
  if (verified_.erase(etag) > 0) changed_ = true;
}

void HubRepository::save_verified() {
  if (!std::exchange(changed_, false)) return;
  try {
    Json blobs = Json::object();
    for (const auto& [etag, entry] : verified_) {
      blobs[etag] = {{"size", entry.size},
                     {"inode", entry.inode},
                     {"modified_ns", entry.modified_ns},
                     {"changed_ns", entry.changed_ns},
                     {"sha256", entry.sha256}};
    }
    write_file_atomic(folder_ / kVerifiedName, Json{{"version", 1}, {"blobs", blobs}}.dump(1));
  } catch (const Error&) {
    // A full disk or a cache of another user: the blobs are hashed again the next time.
  }
}

void HubRepository::link_snapshot(const std::string& commit, const std::string& path,
                                  const std::string& etag) {
  const fs::path link = folder_ / "snapshots" / commit / path;
  fs::path target = "../..";
  for (const char c : path) {
    if (c == '/') target /= "..";
  }
  target = target / "blobs" / etag;
  std::error_code ec;
  if (fs::read_symlink(link, ec) == target && !ec) return;
  make_folders(link.parent_path());
  const fs::path temporary = link.parent_path() / ("." + etag + ".linking");
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) fail_errno(link, "cannot make a link");
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    ::unlink(temporary.c_str());
    fail_errno(link, "cannot rename");
  }
}

void HubRepository::write_ref(const std::string& branch, const std::string& commit) {
  write_file_atomic(folder_ / "refs" / branch, commit);
}

void HubRepository::remove_leftovers() {
  std::error_code ec;
  for (fs::directory_iterator it(folder_ / "blobs", ec); !ec && it != fs::directory_iterator();
       it.increment(ec)) {
    const std::string name = it->path().filename().string();
    const bool temporary = name[0] == '.' && name.find(kPartEnd) != std::string::npos;
    // The note of a part that is gone.
    const fs::path part = it->path().parent_path() / it->path().stem();
    const bool note = it->path().extension() == ".json" && part.extension() == kPartEnd;
    const bool orphan = note && !fs::exists(part, ec);
    if (temporary || orphan) ::unlink(it->path().c_str());
  }
}

void make_folders(const fs::path& folder) {
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) {
    throw IoError{{ec == std::errc::no_space_on_device ? "disk_full" : "file_unwritable",
                   folder.string(), folder.string() + ": cannot create folder: " + ec.message(),
                   ""}};
  }
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace mere
