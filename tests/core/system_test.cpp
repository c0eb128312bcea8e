#include "core/system.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>

#include "temporary_home.h"

namespace mere {
namespace {

// Sets an environment variable and puts the old value back.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    if (value == nullptr) {
      ::unsetenv(name);
    } else {
      ::setenv(name, value, 1);
    }
  }
  ~ScopedVariable() {
    if (old_) {
      ::setenv(name_, old_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(System, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(1536), "1.5 kB");
  EXPECT_EQ(human_bytes(99'400), "99.4 kB");
  EXPECT_EQ(human_bytes(999'499), "999 kB");
  EXPECT_EQ(human_bytes(999'500), "1.0 MB");
  EXPECT_EQ(human_bytes(1'500'000'000), "1.5 GB");
  EXPECT_EQ(human_bytes(INT64_MAX), "9.2 EB");
}

TEST(System, FoldersFollowTheEnvironment) {
  const ScopedVariable home("HOME", "/home/user");
  const ScopedVariable models("MERERUN_MODELS_DIR", nullptr);
  {
    const ScopedVariable data("XDG_DATA_HOME", nullptr);
    const ScopedVariable cache("XDG_CACHE_HOME", nullptr);
    EXPECT_EQ(app_support_dir(), "/home/user/.local/share/MereRun");
    EXPECT_EQ(user_cache_dir(), "/home/user/.cache/MereRun");
    EXPECT_EQ(default_models_dir(), "/home/user/.local/share/MereRun/models");
  }
  const ScopedVariable data("XDG_DATA_HOME", "/data");
  const ScopedVariable cache("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(app_support_dir(), "/data/MereRun");
  EXPECT_EQ(user_cache_dir(), "/cache/MereRun");
  const ScopedVariable chosen("MERERUN_MODELS_DIR", "/models");
  EXPECT_EQ(default_models_dir(), "/models");
}

TEST(System, RelativeXdgPathsAreIgnored) {
  const ScopedVariable home("HOME", "/home/user");
  const ScopedVariable data("XDG_DATA_HOME", "relative");
  EXPECT_EQ(app_support_dir(), "/home/user/.local/share/MereRun");
}

TEST(System, MemoryFiguresArePlausible) {
  EXPECT_GT(available_memory_bytes(), 0);
  EXPECT_GT(physical_memory_bytes(), int64_t{64} << 20);
  EXPECT_GT(peak_rss_bytes(), int64_t{1} << 20);
  EXPECT_LE(peak_rss_bytes(), physical_memory_bytes());
}

TEST(System, MemoryAndDiskOfThisMachine) {
  EXPECT_GT(rss_bytes(), int64_t{1} << 20);
  EXPECT_GT(meminfo_bytes("MemFree").value_or(0), 0);
  EXPECT_FALSE(meminfo_bytes("NoSuchLine"));
  EXPECT_GT(usable_memory_bytes(), int64_t{64} << 20);
  EXPECT_LE(usable_memory_bytes(), physical_memory_bytes());
  EXPECT_GT(free_disk_bytes("/").value_or(0), 0);
  EXPECT_TRUE(free_disk_bytes(fs::temp_directory_path() / "absent" / "deeper"));
}

class Cgroup : public ::testing::Test {
 protected:
  void group(const std::string& name, const std::string& max, const std::string& current,
             const std::string& stat) {
    write_file_atomic(home_.path() / "cg" / name / "memory.max", max + "\n");
    write_file_atomic(home_.path() / "cg" / name / "memory.current", current + "\n");
    write_file_atomic(home_.path() / "cg" / name / "memory.stat", stat);
  }
  CgroupMemory memory(const std::string& membership) {
    write_file_atomic(home_.path() / "self", membership);
    return cgroup_memory(home_.path() / "self", home_.path() / "cg");
  }
  TemporaryHome home_;
};

TEST_F(Cgroup, TheLeastLimitOfTheGroupAndItsParentsCounts) {
  group("", "10000", "9000", "");
  group("a", "max", "500", "");
  group("a/b", "4000", "500", "");
  EXPECT_EQ(memory("1:memory:/old\n0::/a/b\n").limit_bytes, 4000);
  EXPECT_EQ(memory("0::/a/b\n").room_bytes, 1000);
  EXPECT_EQ(memory("0::/\n").limit_bytes, 10000);
  EXPECT_EQ(memory("").limit_bytes, INT64_MAX);
  EXPECT_EQ(memory("").room_bytes, INT64_MAX);
}

// After a model was read the group is full of its pages, all of which can be dropped.
TEST_F(Cgroup, FilesThatWereReadAreRoom) {
  group("a", "10000", "10000", "anon 1000\ninactive_file 6000\nactive_file 2000\n");
  EXPECT_EQ(memory("0::/a\n").room_bytes, 7000);
  group("a", "10000", "3000", "inactive_file 6000\nactive_file 2000\n");
  EXPECT_EQ(memory("0::/a\n").room_bytes, 10000);
}

TEST(System, KnowsItself) {
  EXPECT_FALSE(version().empty());
  EXPECT_TRUE(fs::is_directory(executable_dir()));
}

// Without a home the account's is used, never a folder that others can write.
TEST(System, WithoutHomeNothingIsTakenFromTheTemporaryFolder) {
  const ScopedVariable home("HOME", nullptr);
  const ScopedVariable data("XDG_DATA_HOME", nullptr);
  const ScopedVariable cache("XDG_CACHE_HOME", nullptr);
  for (const fs::path& folder : {app_support_dir(), user_cache_dir()}) {
    EXPECT_TRUE(folder.is_absolute());
    EXPECT_FALSE(folder.string().starts_with(fs::temp_directory_path().string())) << folder;
  }
}

}  // namespace
}  // namespace mere
