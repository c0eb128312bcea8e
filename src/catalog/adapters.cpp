#include "catalog/adapters.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <openssl/evp.h>
#include <thread>
#include <unistd.h>

#include "catalog/file_hash.h"
#include "catalog/names.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr int kAttempts = 3;
constexpr std::chrono::milliseconds kPause{20};

// The name of the published file, when it is an honest one.
std::string file_name(const CatalogAdapter& adapter) {
  const std::string url = adapter.url.substr(0, adapter.url.find_first_of("?#"));
  const std::string name = url.substr(url.rfind('/') + 1);
  return is_model_id(name) && name.ends_with(".safetensors") ? name : adapter.id + ".safetensors";
}

// https, or a server of this machine: tests and mirrors.
bool is_allowed_url(const std::string& url) {
  if (url.starts_with("https://")) return true;
  for (const std::string_view host : {"http://127.0.0.1", "http://localhost", "http://[::1]"}) {
    if (!url.starts_with(host)) continue;
    const char next = url.size() > host.size() ? url[host.size()] : '/';
    if (next == ':' || next == '/') return true;
  }
  return false;
}

// A file under a hidden name beside `path`; gone on destruction unless it was moved there.
class PartialFile {
 public:
  explicit PartialFile(const fs::path& path)
      : path_(path),
        part_(path.parent_path() /
              ("." + path.filename().string() + ".incomplete-" + std::to_string(::getpid()))) {
    std::error_code ec;
    fs::create_directories(path.parent_path(), ec);
    fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) fail("cannot create");
  }
  ~PartialFile() {
    if (fd_ >= 0) ::close(fd_);
    ::unlink(part_.c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const fs::path& part() const { return part_; }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot write");
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }

  void move_into_place() {
    if (::fsync(fd_) != 0) fail("cannot sync");
    if (::rename(part_.c_str(), path_.c_str()) != 0) fail("cannot rename");
  }

 private:
  [[noreturn]] void fail(const char* verb) const {
    throw IoError{{"file_unwritable", path_.string(),
                   path_.string() + ": " + verb + ": " + std::strerror(errno), ""}};
  }

  fs::path path_;
  fs::path part_;
  int fd_ = -1;
};

void fetch_once(const CatalogAdapter& adapter, const fs::path& path, const Fetch& fetch,
                Progress& progress, const std::function<void(int64_t bytes)>& done) {
  PartialFile file(path);
  int64_t bytes = 0;
  fetch(adapter.url, [&](std::string_view piece) {
    progress.check_cancelled();
    bytes += static_cast<int64_t>(piece.size());
    if (bytes > adapter.bytes) {
      throw IoError{{"adapter_wrong_size", adapter.id,
                     "adapter " + adapter.id + ": the server sends more than the " +
                         std::to_string(adapter.bytes) + " bytes of the catalog",
                     ""}};
    }
    file.write(piece);
    if (done) done(bytes);
  });
  if (bytes != adapter.bytes) {
    // Most often a connection that ended early.
    throw TransientError{{"adapter_wrong_size", adapter.id,
                          "adapter " + adapter.id + ": the server sent " + std::to_string(bytes) +
                              " bytes instead of " + std::to_string(adapter.bytes),
                          ""}};
  }
  if (hash_sha256(file.part(), &progress) != adapter.sha256) {
    throw IoError{
        {"adapter_wrong_hash", adapter.id,
         "adapter " + adapter.id + ": what the server sent is not what the catalog names (SHA-256)",
         "nothing was kept; try again later"}};
  }
  file.move_into_place();
}

void wait(std::chrono::milliseconds time, const Progress& progress) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    progress.check_cancelled();
    std::this_thread::sleep_for(std::min(kPause, time));
  }
}

}  // namespace

fs::path adapters_dir() { return app_support_dir() / "adapters"; }

const CatalogAdapter* find_catalog_adapter(std::string_view id) {
  const std::string wanted = lower(trimmed(id));
  for (const CatalogAdapter& adapter : catalog().adapters) {
    if (adapter.id == wanted) return &adapter;
  }
  return nullptr;
}

AdapterState adapter_state(const CatalogAdapter& adapter) {
  AdapterState state{adapter, adapters_dir() / adapter.id / adapter.version / file_name(adapter),
                     false, false};
  std::error_code ec;
  state.installed = fs::is_regular_file(state.path, ec);
  if (!state.installed || adapter.bytes == 0 || adapter.sha256.empty()) return state;
  if (static_cast<int64_t>(fs::file_size(state.path, ec)) != adapter.bytes) return state;
  RememberedHashes hashes;
  state.verified = hashes.sha256(state.path) == adapter.sha256;
  hashes.save();
  return state;
}

std::vector<AdapterState> list_adapters() {
  std::vector<AdapterState> states;
  for (const CatalogAdapter& adapter : catalog().adapters) {
    states.push_back(adapter_state(adapter));
  }
  return states;
}

fs::path resolve_adapter(const std::string& path_or_id, const char* field) {
  std::error_code ec;
  if (fs::is_regular_file(path_or_id, ec)) return path_or_id;
  const CatalogAdapter* known =
      path_or_id.find('/') == std::string::npos ? find_catalog_adapter(path_or_id) : nullptr;
  if (known == nullptr) {
    throw UsageError{
        {"file_not_found", field, std::string(field) + ": no adapter file at " + path_or_id, ""}};
  }
  const AdapterState state = adapter_state(*known);
  if (!state.installed) {
    throw UsageError{{"adapter_not_installed", field,
                      std::string(field) + ": adapter " + known->id + " is not installed",
                      known->has_source() ? "mere.run adapter pull " + known->id
                                          : "it has no public source; give a file's path"}};
  }
  if (!state.verified && !known->sha256.empty()) {
    throw IoError{
        {"adapter_damaged", state.path.string(),
         "adapter " + known->id + " is not what the catalog names: " + state.path.string(),
         "mere.run adapter pull " + known->id + " --force"}};
  }
  return state.path;
}

AdapterPullResult pull_adapter(const CatalogAdapter& adapter, const AdapterPullOptions& options,
                               const Fetch& fetch, Progress& progress,
                               const std::function<void(int64_t bytes)>& done) {
  const AdapterState state = adapter_state(adapter);
  if (state.verified && !options.force) return {state.path, true};
  if (state.installed && !options.force) {
    throw UsageError{{"adapter_differs", state.path.string(),
                      "adapter " + adapter.id + ": another file is at " + state.path.string(),
                      "replace it with --force"}};
  }
  if (adapter.needs_acceptance && !options.accept_license) {
    throw UsageError{{"license_not_accepted", "--accept-license",
                      "adapter " + adapter.id + " is under the licence " +
                          (adapter.license.empty() ? "of its publisher" : adapter.license),
                      "read it, then pull with --accept-license"}};
  }
  if (!is_allowed_url(adapter.url)) {
    throw IoError{{"url_refused", adapter.id,
                   "adapter " + adapter.id + ": only https addresses are fetched", ""}};
  }
  for (int attempt = 1;; ++attempt) {
    try {
      fetch_once(adapter, state.path, fetch, progress, done);
      return {state.path, false};
    } catch (const TransientError& error) {
      if (attempt == kAttempts) throw;
      progress.note("attempt " + std::to_string(attempt) + " failed: " + error.info().message);
    }
    wait(options.retry_delay * attempt, progress);
  }
}

}  // namespace mere
