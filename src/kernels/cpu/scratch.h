// Memory that a thread keeps between products: fresh pages for every product cost several percent
// of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <hwy/aligned_allocator.h>
#include <new>

namespace mere::cpu {

class Scratch {
 public:
  // At least `bytes` of memory, aligned for vectors; what it held before is undefined.
  std::byte* get(int64_t bytes) {
    const int64_t released = releases().load(std::memory_order_relaxed);
    if (bytes > size_ || seen_ != released) {
      seen_ = released;
      memory_.reset();
      size_ = 0;
      memory_ = hwy::AllocateAligned<std::byte>(static_cast<size_t>(bytes));
      if (!memory_) throw std::bad_alloc();
      size_ = bytes;
    }
    return memory_.get();
  }

  int64_t kept_bytes() const { return size_; }

  // What threads keep is given back when they next ask. For the end of a stage whose sizes do not
  // come again.
  static void release_all() { releases().fetch_add(1, std::memory_order_relaxed); }

 private:
  static std::atomic<int64_t>& releases() {
    static std::atomic<int64_t> count{0};
    return count;
  }

  hwy::AlignedFreeUniquePtr<std::byte[]> memory_;
  int64_t size_ = 0;
  int64_t seen_ = 0;
};

}  // namespace mere::cpu
