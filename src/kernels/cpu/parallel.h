// Threads and instruction sets of the CPU kernels.
#pragma once

#include <cstdint>
#include <functional>

namespace mere::cpu {

// Applies MERERUN_THREADS (default: OMP_NUM_THREADS, else all processors; never more than there are
// processors, since more only slow each other down) and MERERUN_CPU_ISA=avx2 or avx512 (caps oneDNN
// and Highway). Idempotent; every kernel calls it before its first work.
void configure();

// Threads that a loop may use.
int64_t max_threads();

// Whether MERERUN_CPU_ISA leaves AMX.
bool amx_allowed();

// The name of a variable above that holds something else than it may, or nullptr.
const char* wrong_environment();

// Runs body(begin, end) over [0, count) split into chunks of at least `grain`, in parallel.
// When bodies throw, the first exception is thrown again after all have ended.
void parallel_for(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end)>& body);

// Runs body(task) for every task in [0, count), each thread taking the next one as it gets free:
// threads that other programs slow down do less. A thread is worth `grain` tasks at least.
// Otherwise like parallel_for.
void parallel_tasks(int64_t count, int64_t grain, const std::function<void(int64_t task)>& body);

// Runs body on a thread that ends with it, and throws what it throws. For loops outside the
// engine's thread: OpenMP keeps threads for every thread that ran a loop, and once there are more
// of them than processors it hardly lets them spin, which makes each short loop of the engine 60 us
// longer.
void on_passing_thread(const std::function<void()>& body);

}  // namespace mere::cpu
