#include "core/system.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <pwd.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace mere {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

fs::path env_path(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

// The user's home: HOME, else the account's. Never a shared folder such as the temporary one, where
// another user could leave models for this one.
fs::path home_dir() {
  const fs::path named = env_path("HOME");
  if (named.is_absolute()) return named;
  std::array<char, 4096> text{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, text.data(), text.size(), &found) == 0 &&
      found != nullptr) {
    const fs::path account = found->pw_dir;
    if (account.is_absolute()) return account;
  }
  return "/nonexistent";
}

fs::path home_relative(const char* variable, const char* fallback) {
  const fs::path explicit_base = env_path(variable);
  return (explicit_base.is_absolute() ? explicit_base : home_dir() / fallback) / "MereRun";
}

// First integer in a kernel file, or -1 ("max", missing file).
int64_t read_kernel_number(const fs::path& path) {
  std::ifstream in(path);
  int64_t value = -1;
  return in >> value ? value : -1;
}

// The number behind `name` in a file of lines "name number", or 0.
int64_t stat_number(const fs::path& path, const std::string& name) {
  std::ifstream in(path);
  std::string word;
  int64_t number = 0;
  while (in >> word >> number) {
    if (word == name) return number;
  }
  return 0;
}

// Room left under a limit on address space, which counts what threads reserve beside what they use.
int64_t address_space_room_bytes() {
  constexpr int64_t kReservedByThreads = int64_t{256} << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<int64_t>::max();
  }
  const int64_t pages = read_kernel_number("/proc/self/statm");
  const int64_t used = std::max<int64_t>(0, pages) * ::sysconf(_SC_PAGE_SIZE);
  const auto total =
      static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
  return std::max<int64_t>(0, total - used - kReservedByThreads);
}

}  // namespace

std::string version() { return MERE_VERSION; }

fs::path app_support_dir() { return home_relative("XDG_DATA_HOME", ".local/share"); }
fs::path user_cache_dir() { return home_relative("XDG_CACHE_HOME", ".cache"); }

fs::path default_models_dir() {
  const fs::path chosen = env_path("MERERUN_MODELS_DIR");
  return chosen.empty() ? app_support_dir() / "models" : chosen;
}

fs::path executable_dir() {
  std::error_code ec;
  const fs::path self = fs::read_symlink("/proc/self/exe", ec);
  return ec ? fs::path(".") : self.parent_path();
}

std::optional<int64_t> meminfo_bytes(const std::string& name) {
  std::ifstream in("/proc/meminfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(name + ":", 0) != 0) continue;
    std::istringstream fields(line.substr(name.size() + 1));
    int64_t kib = -1;
    return fields >> kib && kib >= 0 ? std::optional(kib * 1024) : std::nullopt;
  }
  return std::nullopt;
}

CgroupMemory cgroup_memory(const fs::path& membership, const fs::path& root) {
  CgroupMemory memory{kNoLimit, kNoLimit};
  std::ifstream in(membership);
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    for (fs::path group = (root / fs::path(line.substr(3)).relative_path()).lexically_normal();;
         group = group.parent_path()) {
      const int64_t limit = read_kernel_number(group / "memory.max");
      const int64_t used = read_kernel_number(group / "memory.current");
      if (limit >= 0) memory.limit_bytes = std::min(memory.limit_bytes, limit);
      if (limit >= 0 && used >= 0) {
        // Files that were read count as used; the kernel drops them when memory is asked for. Of
        // those in use only half is counted on.
        const fs::path stat = group / "memory.stat";
        const int64_t cache =
            stat_number(stat, "inactive_file") + stat_number(stat, "active_file") / 2;
        memory.room_bytes = std::min(
            memory.room_bytes, std::max<int64_t>(0, limit - std::max<int64_t>(0, used - cache)));
      }
      if (group.string().size() <= root.string().size()) break;
    }
  }
  return memory;
}

int64_t available_memory_bytes() {
  return std::min({meminfo_bytes("MemAvailable").value_or(kNoLimit), cgroup_memory().room_bytes,
                   address_space_room_bytes()});
}

int64_t usable_memory_bytes() {
  return std::min(physical_memory_bytes(), cgroup_memory().limit_bytes);
}

int64_t rss_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  in >> size >> resident;
  return resident * ::sysconf(_SC_PAGE_SIZE);
}

std::optional<int64_t> free_disk_bytes(const fs::path& path) {
  std::error_code ec;
  fs::path there = fs::absolute(path, ec);
  while (!fs::exists(there, ec) && there != there.parent_path()) there = there.parent_path();
  struct statvfs disk {};
  if (::statvfs(there.c_str(), &disk) != 0) return std::nullopt;
  const auto blocks = static_cast<int64_t>(disk.f_bavail);
  const auto size = static_cast<int64_t>(disk.f_frsize);
  return size > 0 && blocks > kNoLimit / size ? kNoLimit : blocks * size;
}

int64_t peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

int64_t physical_memory_bytes() {
  return int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE);
}

void restart_to_spin_briefly(char** argv) {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    std::string lower = text == nullptr ? "" : text;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    return lower;
  };
  const std::string policy = value("OMP_WAIT_POLICY");
  const std::string spins = value("GOMP_SPINCOUNT");
  const bool number = !spins.empty() && std::isdigit(static_cast<unsigned char>(spins[0])) != 0;
  // What the library does not take is no choice.
  if (policy == "active" || policy == "passive" || number || spins.starts_with("infinit")) return;
  ::unsetenv("OMP_WAIT_POLICY");
  if (::setenv("GOMP_SPINCOUNT", "2000", 1) == 0) ::execv("/proc/self/exe", argv);
}

std::string human_bytes(int64_t bytes) {
  static constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 || value >= 99.5 ? "%.0f %s" : "%.1f %s", value,
                kUnits[unit]);
  return text.data();
}

}  // namespace mere
