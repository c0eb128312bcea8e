// A lock between processes: flock on a file of its own, which stays behind empty.
//
//   const FileLock lock = FileLock::exclusive(hub / ".mererun.lock");
#pragma once

#include "core/files.h"

namespace mere {

class FileLock {
 public:
  // Waits for the lock on `path`; the file and its folder are made when they are missing. Given up
  // on destruction, and by the kernel when the process ends. IoError when that cannot be.
  static FileLock exclusive(const fs::path& path);

  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace mere
