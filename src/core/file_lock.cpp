#include "core/file_lock.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "core/error.h"

namespace mere {

FileLock FileLock::exclusive(const fs::path& path) {
  const auto fail = [&](const char* verb) {
    throw IoError{{"lock_failed", path.string(),
                   path.string() + ": " + verb + ": " + std::strerror(errno), ""}};
  };
  std::error_code ec;
  fs::create_directories(path.parent_path(), ec);
  FileLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (lock.fd_ < 0) fail("cannot open");
  while (::flock(lock.fd_, LOCK_EX) != 0) {
    if (errno != EINTR) fail("cannot lock");
  }
  return lock;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

}  // namespace mere
