#include "stopwatch.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace mere::bench {

Timing repeat(double seconds, int least, const std::function<void()>& prepare,
              const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto first = Clock::now();
  std::vector<double> times;
  while (static_cast<int>(times.size()) < least || since(first) < seconds) {
    prepare();
    const auto start = Clock::now();
    body();
    times.push_back(since(start));
  }
  std::ranges::sort(times);
  return {times[times.size() / 2], times.front(), static_cast<int>(times.size())};
}

}  // namespace mere::bench
