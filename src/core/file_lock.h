// A lock between processes: flock on a file of its own, held until the object goes. Exclusive
// unless said otherwise.
//
//   const FileLock lock = FileLock::acquire(folder / "state.lock", {.progress = &progress});
//   // read, change, write_file_atomic
//
// The kernel gives the lock back when its holder ends, however it ends, so a lock is never left
// over. The lock file stays: removing it would let two processes hold "the" lock at once. It is not
// the file that is protected, for that one is replaced by each atomic write.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "core/files.h"
#include "core/progress.h"

namespace mere {

class FileLock {
 public:
  struct Wait {
    // Looked at while waiting: throws Cancelled once it is cancelled.
    const Progress* progress = nullptr;
    // IoError with code "lock_busy" after this long; absent: waits for ever.
    std::optional<std::chrono::milliseconds> timeout{};
    // Called once when the lock is not free at the first try: to say what is waited for.
    std::function<void()> on_wait{};
    // Held together with others that share it; an exclusive one waits for all of them.
    bool shared = false;
  };

  // Creates `path` (mode 0600, missing parents too) and waits for the lock. IoError naming the file
  // when it cannot be opened, is a symbolic link or no regular file, or cannot be locked.
  static FileLock acquire(const fs::path& path, const Wait& wait);
  static FileLock acquire(const fs::path& path) { return acquire(path, Wait{}); }
  // nullopt when another process, or another lock of this one, holds it.
  static std::optional<FileLock> try_acquire(const fs::path& path);

  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace mere
