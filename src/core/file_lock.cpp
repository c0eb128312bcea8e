#include "core/file_lock.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/error.h"

namespace mere {
namespace {

using Clock = std::chrono::steady_clock;
// Locks are held for a millisecond or for minutes: the pause grows from the first to the last.
constexpr std::chrono::microseconds kFirstPause{500};
constexpr std::chrono::microseconds kLastPause{20'000};

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw IoError{{"lock_unusable", path.string(), path.string() + ": " + what,
                 "a lock is an ordinary file in a folder that can be written"}};
}

int open_lock_file(const fs::path& path) {
  std::error_code ec;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ec);
  // A pipe would block the open without O_NONBLOCK.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                        S_IRUSR | S_IWUSR);
  if (fd >= 0) return fd;
  const int problem = errno;
  if (problem == ELOOP) fail(path, "is a symbolic link, which a lock must not be");
  fail(path, std::string("cannot open the lock: ") + std::strerror(problem));
}

// True when `fd` is the file that `path` names now: the lock on a file that somebody removed keeps
// nobody out.
bool still_there(int fd, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  if (::fstat(fd, &opened) != 0 || !S_ISREG(opened.st_mode)) {
    fail(path, "not a regular file");
  }
  return ::lstat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// The open file with its lock, or -1 when another holds it.
int lock_once(const fs::path& path, bool shared) {
  while (true) {
    const int fd = open_lock_file(path);
    int result = -1;
    do {
      result = ::flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    const int problem = errno;
    try {
      if (result == 0 && still_there(fd, path)) return fd;
      if (result != 0 && problem != EWOULDBLOCK) {
        fail(path, std::string("cannot lock: ") + std::strerror(problem));
      }
    } catch (...) {
      ::close(fd);
      throw;
    }
    ::close(fd);
    if (result != 0) return -1;
  }
}

}  // namespace

FileLock FileLock::acquire(const fs::path& path, const Wait& wait) {
  const Clock::time_point start = Clock::now();
  std::chrono::microseconds pause = kFirstPause;
  for (bool first = true;; first = false) {
    const int fd = lock_once(path, wait.shared);
    if (fd >= 0) return FileLock(fd);
    if (first && wait.on_wait) wait.on_wait();
    if (wait.progress != nullptr) wait.progress->check_cancelled();
    if (wait.timeout && Clock::now() - start >= *wait.timeout) {
      throw IoError{{"lock_busy", path.string(), path.string() + ": another process holds the lock",
                     "wait until it has ended, or end it"}};
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLastPause);
  }
}

std::optional<FileLock> FileLock::try_acquire(const fs::path& path) {
  const int fd = lock_once(path, false);
  return fd < 0 ? std::nullopt : std::optional(FileLock(fd));
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

}  // namespace mere
