#include "catalog/file_hash.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "catalog/names.h"
#include "core/error.h"
#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr size_t kMaxCacheBytes = size_t{4} << 20;
constexpr size_t kMaxCacheEntries = 2000;
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

struct DigestDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_unreadable(const fs::path& path, const char* what) {
  throw IoError{{"file_unreadable", path.string(), path.string() + ": " + what, ""}};
}

// Reads instead of mapping: a disk that fails under a mapping ends the program.
std::string hash_file(const fs::path& path, const EVP_MD* kind, bool as_git_blob,
                      const Progress* progress, const HashedBytes& hashed) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat st {};
  if (file.get() < 0 || ::fstat(file.get(), &st) != 0) fail_unreadable(path, "cannot open");
  if (!S_ISREG(st.st_mode)) fail_unreadable(path, "not a regular file");
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const std::unique_ptr<EVP_MD_CTX, DigestDeleter> context(EVP_MD_CTX_new());
  if (!context || EVP_DigestInit_ex(context.get(), kind, nullptr) != 1) {
    throw InternalError{{"hash_failed", "", "the hash is not available", ""}};
  }
  if (as_git_blob) {
    const std::string head = "blob " + std::to_string(st.st_size);
    EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1);  // with its NUL
  }
  std::vector<char> piece(
      static_cast<size_t>(std::clamp<int64_t>(st.st_size, 1, static_cast<int64_t>(kPieceBytes))));
  while (true) {
    if (progress != nullptr) progress->check_cancelled();
    const ssize_t n = ::read(file.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_unreadable(path, std::strerror(errno));
    if (n == 0) break;
    EVP_DigestUpdate(context.get(), piece.data(), static_cast<size_t>(n));
    if (hashed) hashed(n);
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1) {
    throw InternalError{{"hash_failed", "", "the hash failed", ""}};
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kHex[digest[i] >> 4];
    text += kHex[digest[i] & 15];
  }
  return text;
}

fs::path cache_path() { return user_cache_dir() / "model-digests.json"; }

}  // namespace

std::string hash_sha256(const fs::path& path, const Progress* progress, const HashedBytes& hashed) {
  return hash_file(path, EVP_sha256(), false, progress, hashed);
}

std::string hash_git_blob(const fs::path& path, const Progress* progress,
                          const HashedBytes& hashed) {
  return hash_file(path, EVP_sha1(), true, progress, hashed);
}

std::string hash_like(const std::string& like, const fs::path& path, const Progress* progress,
                      const HashedBytes& hashed) {
  return is_sha256(like) ? hash_sha256(path, progress, hashed)
                         : hash_git_blob(path, progress, hashed);
}

struct RememberedHashes::Cache {
  DigestCache entries;
  bool changed = false;
};

RememberedHashes::RememberedHashes() : cache_(new Cache{read_cache(cache_path())}) {}

RememberedHashes::~RememberedHashes() = default;

std::string RememberedHashes::sha256(const fs::path& path, const Progress* progress) {
  std::error_code ec;
  const fs::path key = fs::canonical(path, ec);
  if (ec) fail_unreadable(path, "cannot find");
  const FileState state = file_state(key);
  const auto known = cache_->entries.find(key.string());
  if (known != cache_->entries.end() && known->second.state == state) return known->second.sha256;
  std::string sha256 = hash_sha256(key, progress);
  const int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
  const int64_t newest_ns = std::max(state.modified_ns, state.changed_ns);
  if (now_ns - newest_ns > kYoungest_ns && file_state(key) == state) {
    make_room(cache_->entries);
    cache_->entries[key.string()] = {state, sha256};
    cache_->changed = true;
  }
  return sha256;
}

void RememberedHashes::save() {
  if (cache_->changed) write_cache(cache_path(), cache_->entries);
  cache_->changed = false;
}

}  // namespace mere
