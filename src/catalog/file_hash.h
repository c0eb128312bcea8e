// Hashes of whole files, as the Hub names contents: SHA-256 of large files, and for small ones the
// SHA-1 that git gives a blob. For checking against what a server or a manifest says, never as
// protection by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/files.h"
#include "core/progress.h"

namespace mere {

// Bytes hashed since the last call.
using HashedBytes = std::function<void(int64_t bytes)>;

// Lower-case hex; IoError when the file cannot be read. `progress` is asked for cancellation about
// every 4 MiB.
std::string hash_sha256(const fs::path& path, const Progress* progress = nullptr,
                        const HashedBytes& hashed = {});
std::string hash_git_blob(const fs::path& path, const Progress* progress = nullptr,
                          const HashedBytes& hashed = {});

// The hash of the kind that `like` is, by its length: 64 digits or 40.
std::string hash_like(const std::string& like, const fs::path& path,
                      const Progress* progress = nullptr, const HashedBytes& hashed = {});

// SHA-256 of files, remembered from run to run by size, times and inode in model-digests.json of
// the user's cache folder: hashing 16 GB at every start would cost more than the picture.
class RememberedHashes {
 public:
  RememberedHashes();
  ~RememberedHashes();
  RememberedHashes(const RememberedHashes&) = delete;
  RememberedHashes& operator=(const RememberedHashes&) = delete;

  std::string sha256(const fs::path& path, const Progress* progress = nullptr);
  // Writes what is new; a failure to write is no error.
  void save();

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace mere
