// Files: bounded reads, atomic writes, read-only mappings. All failures are IoError naming the
// file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace mere {

namespace fs = std::filesystem;

// Whole file as bytes; refuses files larger than `max_bytes` before reading.
std::string read_file(const fs::path& path, size_t max_bytes);

// Writes `bytes` to a temporary name in the same folder, syncs, and renames: the final name never
// holds a partial file. Missing parent folders are created. A file that is replaced hands on its
// permissions (a new one gets those of the umask); through a symbolic link its target is replaced,
// and a link to nothing or to no regular file is refused.
void write_file_atomic(const fs::path& path, std::string_view bytes);

// The same with mode 0600, whatever mode a replaced file had: at no instant can others read the new
// bytes. For secrets and for state of one user.
void write_private_file_atomic(const fs::path& path, std::string_view bytes);

// Removes the temporary files that writers of `path` left when they were killed. Only for the
// holder of a lock that every writer of `path` takes.
void remove_abandoned_writes(const fs::path& path);

// A whole file mapped read-only. Movable; unmapped on destruction. A regular file only.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const fs::path& path() const { return path_; }

  // Lets the process's pages go. The bytes stay readable: the next access maps them again, from the
  // system's file cache while it has them.
  void release_pages() const;

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// `name` (from a file) resolved inside `root`, symbolic links included. IoError when it is empty,
// absolute, holds a NUL, or leaves `root`.
fs::path resolve_inside(const fs::path& root, std::string_view name);

// The same for a file of a model: it may also be a link to a blob of a hub cache, that is a regular
// file <anything>/models--*/blobs/<40 or 64 hex digits>. Returns the place inside `root`, not the
// blob, so that messages and suffixes stay those of the model.
fs::path resolve_model_file(const fs::path& root, std::string_view name);

// Lower-case hex SHA-256.
std::string sha256_hex(std::string_view bytes);
std::string sha256_file(const fs::path& path);

}  // namespace mere
