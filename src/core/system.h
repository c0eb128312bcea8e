// The machine and the user's folders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/files.h"

namespace mere {

// Program version, e.g. "0.1.0".
std::string version();

// ${XDG_DATA_HOME:-~/.local/share}/MereRun. `base()` and below are not created by these.
fs::path app_support_dir();
// ${XDG_CACHE_HOME:-~/.cache}/MereRun.
fs::path user_cache_dir();
// MERERUN_MODELS_DIR, else <app_support>/models.
fs::path default_models_dir();
// Folder of the running executable, links resolved.
fs::path executable_dir();

// Memory this process may still take, in bytes: the least of MemAvailable, the room under every
// cgroup limit, and the room under a limit on address space.
int64_t available_memory_bytes();
// Memory this process could have with nothing else running, in bytes: the machine's, or less under
// the limit of a cgroup.
int64_t usable_memory_bytes();

// The limits of control groups (version 2) over this process; the arguments are for tests.
struct CgroupMemory {
  int64_t limit_bytes;  // the least; INT64_MAX where there is none
  int64_t room_bytes;   // the least room under one, with the file cache that can be dropped
};
CgroupMemory cgroup_memory(const fs::path& membership = "/proc/self/cgroup",
                           const fs::path& root = "/sys/fs/cgroup");

// A line of /proc/meminfo ("MemFree", "Inactive", ...) in bytes; nullopt where it has none.
std::optional<int64_t> meminfo_bytes(const std::string& name);
// Resident size of this process now, in bytes.
int64_t rss_bytes();
// Bytes that a user may still write to the file system of `path`, which need not exist yet; nullopt
// when that cannot be found out.
std::optional<int64_t> free_disk_bytes(const fs::path& path);

// Largest resident size of this process so far, in bytes.
int64_t peak_rss_bytes();
// Physical memory of the machine in bytes.
int64_t physical_memory_bytes();

// Starts this program again with GOMP_SPINCOUNT=2000, once: to be called first in main(). Returns
// when the user chose how OpenMP's threads wait, or when it cannot.
//
// The threads spin for milliseconds while they wait unless told otherwise before the library is
// loaded, which on a busy machine steals the time of the thread that everybody waits for: with the
// processors otherwise loaded a run took three times as long. Some 30 us bridge the gaps between
// short loops and cost nothing then. Starting again costs 12 ms.
void restart_to_spin_briefly(char** argv);

// "1.5 GB" with decimal units.
std::string human_bytes(int64_t bytes);

}  // namespace mere
