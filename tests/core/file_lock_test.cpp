#include "core/file_lock.h"

#include <array>
#include <atomic>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "temporary_home.h"

#include "core/error.h"

namespace mere {
namespace {

using std::chrono::milliseconds;

class FileLockTest : public ::testing::Test {
 protected:
  std::string refusal() {
    try {
      (void)FileLock::try_acquire(path_);
    } catch (const IoError& e) {
      EXPECT_EQ(e.info().code, "lock_unusable");
      return e.what();
    }
    return "no error";
  }

  TemporaryHome home_;
  fs::path path_ = home_.path() / "sub" / "state.lock";
};

TEST_F(FileLockTest, OneHolderAtATime) {
  {
    const FileLock lock = FileLock::acquire(path_);
    EXPECT_FALSE(FileLock::try_acquire(path_));
  }
  EXPECT_TRUE(FileLock::try_acquire(path_));
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(FileLockTest, MovingHandsTheLockOn) {
  std::optional<FileLock> first = FileLock::try_acquire(path_);
  ASSERT_TRUE(first);
  FileLock second = std::move(*first);
  first.reset();
  EXPECT_FALSE(FileLock::try_acquire(path_));
  second = FileLock::acquire(home_.path() / "other");
  EXPECT_FALSE(FileLock::try_acquire(home_.path() / "other"));
}

TEST_F(FileLockTest, TheFileIsPrivateAndNotInherited) {
  const mode_t old = ::umask(0);
  const FileLock lock = FileLock::acquire(path_);
  ::umask(old);
  EXPECT_EQ(fs::status(path_).permissions(), static_cast<fs::perms>(0600));
  int found = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ec;
    if (fs::read_symlink(entry.path(), ec) != path_) continue;
    ++found;
    EXPECT_NE(::fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(found, 1);
}

TEST_F(FileLockTest, RefusesWhatIsNoFile) {
  fs::create_directories(path_.parent_path());
  fs::create_symlink("target", path_);
  EXPECT_NE(refusal().find("symbolic link"), std::string::npos);
  EXPECT_FALSE(fs::exists(path_.parent_path() / "target"));
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_NE(refusal(), "no error");
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("not a regular file"), std::string::npos);
}

TEST_F(FileLockTest, WaitsUntilItIsFree) {
  std::optional<FileLock> held = FileLock::try_acquire(path_);
  std::atomic<bool> waits = false;
  std::thread other(
      [&] { const FileLock lock = FileLock::acquire(path_, {.on_wait = [&] { waits = true; }}); });
  while (!waits) std::this_thread::yield();
  held.reset();
  other.join();
  EXPECT_TRUE(FileLock::try_acquire(path_));
}

TEST_F(FileLockTest, WaitingEndsByCancellingOrInTime) {
  const FileLock held = FileLock::acquire(path_);
  SilentProgress progress;
  const auto cancel = [&] { progress.cancel(); };
  EXPECT_THROW(FileLock::acquire(path_, {.progress = &progress, .on_wait = cancel}), Cancelled);
  try {
    FileLock::acquire(path_, {.timeout = milliseconds(5)});
    FAIL();
  } catch (const IoError& e) {
    EXPECT_EQ(e.info().code, "lock_busy");
  }
}

// A second "the lock" on a new file of the same name would let two in at once.
TEST_F(FileLockTest, AFileThatWasRemovedMeanwhileCountsNot) {
  std::optional<FileLock> held = FileLock::try_acquire(path_);
  std::atomic<bool> waits = false;
  std::thread other([&] {
    const FileLock lock = FileLock::acquire(path_, {.on_wait = [&] { waits = true; }});
    EXPECT_TRUE(fs::exists(path_));
    EXPECT_FALSE(FileLock::try_acquire(path_));
  });
  while (!waits) std::this_thread::yield();
  fs::remove(path_);
  held.reset();
  other.join();
}

TEST_F(FileLockTest, IsGivenBackByTheKernelWhenItsHolderIsKilled) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock = FileLock::acquire(path_);
    const ssize_t told = ::write(ends[1], "x", 1);
    while (told == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  EXPECT_FALSE(FileLock::try_acquire(path_));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(FileLock::try_acquire(path_));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(FileLock, SharedOnesKeepOnlyExclusiveOnesOut) {
  const TemporaryHome home;
  const fs::path path = home.path() / "shared.lock";
  {
    const FileLock one = FileLock::acquire(path, {.shared = true});
    const FileLock two = FileLock::acquire(path, {.shared = true});
    EXPECT_FALSE(FileLock::try_acquire(path));
  }
  const std::optional<FileLock> alone = FileLock::try_acquire(path);
  ASSERT_TRUE(alone);
  EXPECT_THROW(FileLock::acquire(path, {.timeout = std::chrono::milliseconds(1), .shared = true}),
               IoError);
}

}  // namespace
}  // namespace mere
