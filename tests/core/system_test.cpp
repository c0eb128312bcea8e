#include "core/system.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>

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
