#include "kernels/cpu/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <dnnl.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <omp.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace mere::test {
namespace {

TEST(ParallelFor, VisitsEachIndexOnce) {
  for (const int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    for (const int64_t grain : {0, 1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
      cpu::parallel_for(count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      for (const auto& visit : visits) EXPECT_EQ(visit, 1);
    }
  }
}

TEST(ParallelFor, MayBeNested) {
  std::atomic<int> sum{0};
  cpu::parallel_for(8, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      cpu::parallel_for(10, 1, [&](int64_t b, int64_t e) { sum += static_cast<int>(e - b); });
    }
  });
  EXPECT_EQ(sum, 80);
}

TEST(ParallelFor, ThrowsAgainWhatABodyThrew) {
  for (const int64_t count : {1, 100}) {
    EXPECT_THROW(
        cpu::parallel_for(count, 1, [](int64_t, int64_t) { throw std::out_of_range("body"); }),
        std::out_of_range);
  }
}

TEST(ParallelFor, HonoursTheThreadSetting) {
  const char* setting = std::getenv("MERERUN_THREADS");
  std::atomic<int> chunks{0};
  // The setting reaches every thread that works, as the engine's own.
  std::thread([&] { cpu::parallel_for(4096, 1, [&](int64_t, int64_t) { ++chunks; }); }).join();
  EXPECT_EQ(chunks, setting == nullptr ? omp_get_max_threads()
                                       : std::min(std::stoi(setting), omp_get_num_procs()));
}

bool capped_to_avx2() {
  cpu::configure();
#if HWY_ARCH_X86
  if ((hwy::SupportedTargets() & (HWY_AVX2 - 1)) != 0) return false;
#endif
  return dnnl_get_effective_cpu_isa() <= dnnl_cpu_isa_avx2;
}

// The setting is read once in a process, so the check needs one of its own.
TEST(ConfigureDeathTest, CapsTheInstructionSets) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const char* before = std::getenv("MERERUN_CPU_ISA");
  const std::string restored = before == nullptr ? "" : before;
  ::setenv("MERERUN_CPU_ISA", "avx2", 1);
  EXPECT_EXIT(std::exit(capped_to_avx2() ? 0 : 1), testing::ExitedWithCode(0), "");
  before == nullptr ? ::unsetenv("MERERUN_CPU_ISA")
                    : ::setenv("MERERUN_CPU_ISA", restored.c_str(), 1);
}

}  // namespace
}  // namespace mere::test
