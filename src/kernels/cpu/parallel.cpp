#include "kernels/cpu/parallel.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <hwy/highway.h>
#include <mutex>
#include <omp.h>
#include <string_view>

#include "kernels/cpu/onednn.h"

namespace mere::cpu {
namespace {

constexpr int kMaxThreads = 1024;

bool capped_to_avx2() {
  const char* isa = std::getenv("MERERUN_CPU_ISA");
  return isa != nullptr && std::string_view(isa) == "avx2";
}

}  // namespace

void configure() {
  static std::once_flag isa_once;
  std::call_once(isa_once, [] {
    if (!capped_to_avx2()) return;
#if HWY_ARCH_X86
    hwy::DisableTargets(HWY_AVX2 - 1);  // the better the target, the lower its bit
#endif
    onednn_cap_avx2();
  });
  // The OpenMP setting belongs to the calling thread, and kernels run on the engine's own.
  thread_local const bool threads_set = [] {
    const char* threads = std::getenv("MERERUN_THREADS");
    const int wanted = threads == nullptr ? 0 : std::atoi(threads);
    if (wanted > 0) omp_set_num_threads(std::min(wanted, kMaxThreads));
    return true;
  }();
  (void)threads_set;
}

void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& body) {
  configure();
  const int64_t most = std::max<int64_t>(1, count / std::max<int64_t>(1, grain));
  const int64_t threads = std::min<int64_t>(most, omp_get_max_threads());
  if (threads <= 1 || omp_in_parallel() != 0) {
    if (count > 0) body(0, count);
    return;
  }
  std::exception_ptr failure;  // an exception that left the region would end the process
  std::mutex failure_mutex;
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static, 1)
  for (int64_t part = 0; part < threads; ++part) {
    try {
      body(count * part / threads, count * (part + 1) / threads);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace mere::cpu
