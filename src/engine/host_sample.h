// What the machine has at one moment, and what the rules of admission make of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/files.h"

namespace mere {

// Bytes; absent: the system does not tell.
struct HostSample {
  int64_t physical = 0;                // memory of the machine, or less under the limit of a cgroup
  std::optional<int64_t> available{};  // memory that could be had now
  std::optional<int64_t> own{};        // resident size of this process
  std::optional<int64_t> free{}, inactive{}, active{};  // pages of the machine
  std::optional<int64_t> disk{};  // free on the file system of the application's folder
};

// `folder`: of the ledger; it need not exist.
HostSample sample_host(const fs::path& folder);

// Free disk below which no job starts, for swap and temporary files: an eighth of the memory, from
// 8 to 32 GiB.
int64_t minimum_disk_bytes(const HostSample& host);

enum class MemoryPressure { kUnknown, kNominal, kElevated, kCritical };
// "unknown", "nominal", "elevated", "critical".
std::string_view memory_pressure_name(MemoryPressure pressure);

// By the size of this process against a ceiling: the memory less a reserve, and no more than its
// own, free, inactive and half the active pages. From 90 % of it elevated, from 95 % critical.
MemoryPressure memory_pressure(const HostSample& host);

}  // namespace mere
