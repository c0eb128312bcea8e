// Which process a number on disk means, after crashes, reboots and reused numbers (Linux: /proc).
//
//   const bool alive = boot == boot_id() && process_is_alive(pid, start_ticks);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

namespace mere {

// One line of /proc/<pid>/stat.
struct ProcessStat {
  char state = '?';  // 'R', 'S', 'Z', ...
  pid_t parent = 0;
  int64_t threads = 0;
  uint64_t start_ticks = 0;  // clock ticks from boot to its start: tells processes of one pid apart
};

// nullopt when there is no such process, or /proc does not show it.
std::optional<ProcessStat> process_stat(pid_t pid);
// For tests: the same of the line's text.
std::optional<ProcessStat> parse_process_stat(const std::string& line);

// Another value after each start of the machine: the kernel's boot id, else the second it booted.
std::string boot_id();

// False when no process has this number, when it has ended and only waits for its parent to notice
// (its memory and its locks are gone), or when it started at another time than `start_ticks`.
bool process_is_alive(pid_t pid, std::optional<uint64_t> start_ticks);

// True when `pid` is this process or a parent, grandparent, ... of it.
bool is_self_or_ancestor(pid_t pid);

}  // namespace mere
