#include "engine/host_sample.h"

#include <algorithm>

#include "core/system.h"
#include "engine/workload.h"

namespace mere {
namespace {

constexpr int64_t kMinDiskBytes = 8 * kGib;
constexpr int64_t kMaxDiskBytes = 32 * kGib;
// The "balanced" memory guard.
constexpr int64_t kSmallMachineBytes = 24 * kGib;
constexpr int64_t kSmallMachineReserveBytes = 4 * kGib;
constexpr int64_t kReserveBytes = 6 * kGib;
constexpr double kActiveReclaimShare = 0.5;
constexpr double kElevatedShare = 0.90;
constexpr double kCriticalShare = 0.95;

}  // namespace

HostSample sample_host(const fs::path& folder) {
  return {.physical = usable_memory_bytes(),
          .available = available_memory_bytes(),
          .own = rss_bytes(),
          .free = meminfo_bytes("MemFree"),
          .inactive = meminfo_bytes("Inactive"),
          .active = meminfo_bytes("Active"),
          .disk = free_disk_bytes(folder)};
}

int64_t minimum_disk_bytes(const HostSample& host) {
  return std::clamp(host.physical / 8, kMinDiskBytes, kMaxDiskBytes);
}

std::string_view memory_pressure_name(MemoryPressure pressure) {
  switch (pressure) {
    case MemoryPressure::kUnknown:
      return "unknown";
    case MemoryPressure::kNominal:
      return "nominal";
    case MemoryPressure::kElevated:
      return "elevated";
    case MemoryPressure::kCritical:
      return "critical";
  }
  return "unknown";
}

MemoryPressure memory_pressure(const HostSample& host) {
  if (!host.own || !host.free || !host.inactive || !host.active) return MemoryPressure::kUnknown;
  const int64_t reserve =
      host.physical < kSmallMachineBytes ? kSmallMachineReserveBytes : kReserveBytes;
  // Of a machine below 8 GiB the reserve would leave little or nothing: half of it then.
  const int64_t most = std::max(host.physical - reserve, host.physical / 2);
  const double reclaimable = static_cast<double>(*host.own + *host.free + *host.inactive) +
                             kActiveReclaimShare * static_cast<double>(*host.active);
  const double ceiling = std::min(static_cast<double>(most), reclaimable);
  const auto own = static_cast<double>(*host.own);
  if (own >= kCriticalShare * ceiling) return MemoryPressure::kCritical;
  return own >= kElevatedShare * ceiling ? MemoryPressure::kElevated : MemoryPressure::kNominal;
}

}  // namespace mere
