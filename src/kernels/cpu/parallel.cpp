#include "kernels/cpu/parallel.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <future>
#include <hwy/highway.h>
#include <mutex>
#include <omp.h>
#include <string_view>

#include "kernels/cpu/onednn.h"

namespace mere::cpu {
namespace {

// MERERUN_THREADS as a number above zero; 0 when unset, -1 when it is something else.
int threads_wanted() {
  const char* text = std::getenv("MERERUN_THREADS");
  if (text == nullptr || *text == '\0') return 0;
  const std::string_view digits = text;
  int wanted = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), wanted);
  const bool number = error == std::errc() && end == digits.data() + digits.size();
  return number && wanted > 0 ? wanted : -1;
}

// MERERUN_CPU_ISA, empty when unset.
std::string_view isa_cap() {
  const char* isa = std::getenv("MERERUN_CPU_ISA");
  return isa == nullptr ? "" : isa;
}

}  // namespace

void configure() {
  static std::once_flag isa_once;
  std::call_once(isa_once, [] {
    if (isa_cap() == "avx512") onednn_cap_avx512();
    if (isa_cap() != "avx2") return;
#if HWY_ARCH_X86
    hwy::DisableTargets(HWY_AVX2 - 1);  // the better the target, the lower its bit
#endif
    onednn_cap_avx2();
  });
  // The OpenMP setting belongs to the calling thread, and kernels run on the engine's own.
  thread_local const bool threads_set = [] {
    const int wanted = threads_wanted();
    const int asked = wanted > 0 ? wanted : omp_get_max_threads();
    omp_set_num_threads(std::min(asked, omp_get_num_procs()));
    return true;
  }();
  (void)threads_set;
}

int64_t max_threads() {
  configure();
  return omp_get_max_threads();
}

bool amx_allowed() { return isa_cap().empty(); }

const char* wrong_environment() {
  if (threads_wanted() < 0) return "MERERUN_THREADS";
  const bool known = isa_cap().empty() || isa_cap() == "avx2" || isa_cap() == "avx512";
  return known ? nullptr : "MERERUN_CPU_ISA";
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

void parallel_tasks(int64_t count, int64_t grain, const std::function<void(int64_t task)>& body) {
  std::atomic<int64_t> next{0};
  const int64_t threads = std::min(count / std::max<int64_t>(1, grain), max_threads());
  parallel_for(std::max<int64_t>(1, threads), 1, [&](int64_t, int64_t) {
    for (int64_t task = next++; task < count; task = next++) body(task);
  });
}

void on_passing_thread(const std::function<void()>& body) {
  std::async(std::launch::async, body).get();
}

}  // namespace mere::cpu
