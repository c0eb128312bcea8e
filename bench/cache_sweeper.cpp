#include "cache_sweeper.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <unistd.h>

#include "kernels/cpu/parallel.h"

namespace mere::bench {
namespace {

constexpr int64_t kLeastBytes = int64_t{64} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 30;

// Twice the last-level cache, where the system knows it.
int64_t sweep_bytes() {
  int64_t cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  return std::clamp(2 * cache, kLeastBytes, kMostBytes);
}

// Four sums: one alone would wait for its own last addition.
uint64_t sum(const uint64_t* from, int64_t count) {
  std::array<uint64_t, 4> sums{};
  int64_t i = 0;
  for (; i + 3 < count; i += 4) {
    for (int64_t lane = 0; lane < 4; ++lane) sums[lane] += from[i + lane];
  }
  for (; i < count; ++i) sums[0] += from[i];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

}  // namespace

uint64_t parallel_sum(std::span<const uint64_t> words) {
  constexpr int64_t kGrain = 1 << 16;
  std::atomic<uint64_t> total = 0;
  cpu::parallel_for(std::ssize(words), kGrain, [&](int64_t begin, int64_t end) {
    total += sum(words.data() + begin, end - begin);
  });
  return total;
}

CacheSweeper::CacheSweeper() : words_(sweep_bytes() / sizeof(uint64_t), 1) {}

void CacheSweeper::sweep() { total_ += parallel_sum(words_); }

}  // namespace mere::bench
