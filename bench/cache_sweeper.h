// Memory read with all threads, to measure it or to clear the caches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mere::bench {

// The sum of `words` modulo 2^64.
uint64_t parallel_sum(std::span<const uint64_t> words);

// Puts other data into all caches. A kernel that is called again and again on the same arrays would
// find them there, which in a model the next layer's weights never are.
class CacheSweeper {
 public:
  CacheSweeper();
  void sweep();

 private:
  std::vector<uint64_t> words_;
  uint64_t total_ = 0;  // a sum that nobody takes would not be computed
};

}  // namespace mere::bench
