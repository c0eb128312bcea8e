// Ctrl+C and SIGTERM while a long command runs: the first asks the work to stop at its next step,
// the second ends the process at once with status 130.
#pragma once

#include "core/progress.h"

namespace mere::cli {

class InterruptGuard {
 public:
  // `progress` is cancelled by the first signal; it must outlive the guard. One guard at a time.
  // `announce`: tell on stderr that the work is stopping.
  InterruptGuard(Progress& progress, bool announce);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

}  // namespace mere::cli
