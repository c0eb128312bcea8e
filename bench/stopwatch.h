// Repeated timing.
#pragma once

#include <functional>

namespace mere::bench {

struct Timing {
  double median = 0, best = 0;  // seconds
  int repeats = 0;
};

// Runs `prepare` and `body` in turn until they took `seconds` together, at least `least` times.
// Only `body` is timed.
Timing repeat(double seconds, int least, const std::function<void()>& prepare,
              const std::function<void()>& body);

}  // namespace mere::bench
