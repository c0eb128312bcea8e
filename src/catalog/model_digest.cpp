// Digest of a model's weights, with a cache of file hashes: hashing 16 GB at every start would cost
// more than the picture.
#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <sys/stat.h>

#include "catalog/model_root.h"
#include "core/error.h"
#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr size_t kMaxCacheBytes = size_t{4} << 20;
constexpr size_t kMaxCacheEntries = 2000;
constexpr size_t kMaxWeightFiles = 4096;
// A file changed in the same clock tick as it was hashed looks unchanged afterwards, so files this
// young are not remembered.
constexpr int64_t kYoungest_ns = 2'000'000'000;

// What must be the same for a remembered hash to hold.
struct FileState {
  int64_t size = 0;  // bytes
  int64_t inode = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  bool operator==(const FileState&) const = default;
};

struct CacheEntry {
  FileState state;
  std::string sha256;
};
using DigestCache = std::map<std::string, CacheEntry>;

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileState file_state(const fs::path& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    throw IoError{{"file_unreadable", path.string(), path.string() + ": cannot stat", ""}};
  }
  return {int64_t{st.st_size}, static_cast<int64_t>(st.st_ino), nanoseconds(st.st_mtim),
          nanoseconds(st.st_ctim)};
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Whatever is wrong with the cache file, the answer is an empty cache: it holds nothing that cannot
// be computed again.
DigestCache read_cache(const fs::path& path) {
  DigestCache cache;
  try {
    const std::string source = path.string();
    const Json json = parse_json_file(path, kMaxCacheBytes);
    if (json_int(json, "version", 1, 1, source) != 1) return {};
    for (const auto& item : json.at("files").items()) {
      if (cache.size() >= kMaxCacheEntries) break;
      const auto number = [&](const char* key) {
        return json_int(item.value(), key, INT64_MIN, INT64_MAX, source);
      };
      CacheEntry read{
          {number("size"), number("inode"), number("modified_ns"), number("changed_ns")},
          json_string_or(item.value(), "sha256", "", source)};
      if (is_sha256(read.sha256)) cache.emplace(item.key(), std::move(read));
    }
  } catch (const std::exception&) {
    return {};
  }
  return cache;
}

void write_cache(const fs::path& path, const DigestCache& cache) {
  try {
    Json files = Json::object();
    for (const auto& [name, entry] : cache) {
      files[name] = {{"size", entry.state.size},
                     {"inode", entry.state.inode},
                     {"modified_ns", entry.state.modified_ns},
                     {"changed_ns", entry.state.changed_ns},
                     {"sha256", entry.sha256}};
    }
    write_file_atomic(path, Json{{"version", 1}, {"files", files}}.dump(1));
  } catch (const std::exception&) {
    // No cache (read-only home, full disk, a path that is not UTF-8) only costs time.
  }
}

// Makes room for one more entry: files that are gone go first, then the first in order.
void make_room(DigestCache& cache) {
  if (cache.size() < kMaxCacheEntries) return;
  std::erase_if(cache, [](const auto& item) {
    std::error_code ec;
    return !fs::exists(item.first, ec);
  });
  while (cache.size() >= kMaxCacheEntries) cache.erase(cache.begin());
}

void add_weights(const fs::path& folder, const std::string& prefix,
                 std::map<std::string, fs::path>& files) {
  std::error_code ec;
  fs::directory_iterator it(folder, ec);
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (it->path().extension() != ".safetensors" || name[0] == '.') continue;
    if (!it->is_regular_file(ec)) continue;
    if (files.size() >= kMaxWeightFiles) {
      throw IoError{
          {"too_many_files", folder.string(),
           folder.string() + ": more than " + std::to_string(kMaxWeightFiles) + " weight files",
           ""}};
    }
    files.emplace(prefix + name, it->path());
  }
}

// "<component>/<file>" -> path. Named by component and not by place, so that a borrowed component
// gives the same digest as a copied one.
std::map<std::string, fs::path> weight_files(const ModelRoot& root) {
  std::set<std::string> components = {"text_encoder", "transformer", "vae"};
  for (const auto& [name, path] : root.component_paths) components.insert(name);
  std::map<std::string, fs::path> files;
  for (const std::string& name : components) {
    add_weights(root.component(name), name + "/", files);
  }
  if (files.empty()) add_weights(root.path, "", files);
  return files;
}

}  // namespace

std::string model_digest(const ModelRoot& root, const Progress* progress) {
  const fs::path cache_path = user_cache_dir() / "model-digests.json";
  DigestCache cache = read_cache(cache_path);
  bool cache_changed = false;
  std::string lines;
  for (const auto& [name, path] : weight_files(root)) {
    if (progress != nullptr) progress->check_cancelled();
    const fs::path key = fs::canonical(path);
    const FileState state = file_state(key);
    const auto known = cache.find(key.string());
    std::string sha256;
    if (known != cache.end() && known->second.state == state) {
      sha256 = known->second.sha256;
    } else {
      sha256 = sha256_file(key);
      const int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
      const int64_t newest_ns = std::max(state.modified_ns, state.changed_ns);
      if (now_ns - newest_ns > kYoungest_ns && file_state(key) == state) {
        make_room(cache);
        cache[key.string()] = {state, sha256};
        cache_changed = true;
      }
    }
    lines += sha256 + "  " + name + "\n";
  }
  if (cache_changed) write_cache(cache_path, cache);
  return sha256_hex(lines);
}

}  // namespace mere
