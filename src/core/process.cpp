#include "core/process.h"

#include <cerrno>
#include <fstream>
#include <signal.h>
#include <sstream>
#include <unistd.h>

#include "core/error.h"

namespace mere {
namespace {

constexpr int kMaxAncestors = 1024;

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(const std::string& line) {
  // The second field is the program's name in brackets, and may itself hold spaces and brackets.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcessStat stat;
  fields >> stat.state >> stat.parent;
  std::string skipped;
  for (int field = 5; field < 20; ++field) fields >> skipped;
  fields >> stat.threads >> skipped >> stat.start_ticks;
  return fields ? std::optional(stat) : std::nullopt;
}

std::optional<ProcessStat> process_stat(pid_t pid) {
  return parse_process_stat(first_line("/proc/" + std::to_string(pid) + "/stat"));
}

std::string boot_id() {
  if (std::string id = first_line("/proc/sys/kernel/random/boot_id"); !id.empty()) {
    return printable(id, 100);
  }
  std::ifstream in("/proc/stat");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("btime ")) return line.substr(6);
  }
  return "unknown";
}

bool process_is_alive(pid_t pid, std::optional<uint64_t> start_ticks) {
  if (pid <= 0) return false;
  // EPERM: it is there and belongs to another user.
  if (::kill(pid, 0) != 0 && errno != EPERM) return false;
  const std::optional<ProcessStat> stat = process_stat(pid);
  if (!stat) return true;
  const bool ended = (stat->state == 'Z' || stat->state == 'X') && stat->threads <= 1;
  return !ended && (!start_ticks || stat->start_ticks == *start_ticks);
}

bool is_self_or_ancestor(pid_t pid) {
  pid_t at = ::getpid();
  for (int i = 0; i < kMaxAncestors && at > 0; ++i) {
    if (at == pid) return true;
    const std::optional<ProcessStat> stat = process_stat(at);
    if (!stat) return false;
    at = stat->parent;
  }
  return false;
}

}  // namespace mere
