#include "kernels/buffer_cache.h"

#include <algorithm>
#include <cstdint>
#include <list>
#include <mutex>
#include <sys/mman.h>

#include "kernels/cpu/scratch.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr size_t kLeast = size_t{1} << 20;  // smaller ones are cheap to take anew
constexpr size_t kMost = size_t{16} << 20;  // of all that is kept

// Touching a large buffer page by page can cost more than the kernel that fills it. Only the whole
// huge pages inside are asked for, so it takes no more memory.
void prefer_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes < 2 * kHugePage) return;
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (address + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (address + bytes) / kHugePage * kHugePage;
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

class BufferCache {
 public:
  mx::allocator::Buffer take(size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      auto best = kept_.end();
      for (auto it = kept_.begin(); it != kept_.end(); ++it) {
        const bool fits = it->size >= bytes && it->size - bytes <= bytes / 4;
        if (fits && (best == kept_.end() || it->size < best->size)) best = it;
      }
      if (best != kept_.end()) {
        const mx::allocator::Buffer buffer = best->buffer;
        held_ -= best->size;
        kept_.erase(best);
        return buffer;
      }
    }
    mx::allocator::Buffer buffer = mx::allocator::allocator().malloc(bytes);
    prefer_huge_pages(buffer.raw_ptr(), bytes);
    return buffer;
  }

  void give(mx::allocator::Buffer buffer) {
    const size_t size = mx::allocator::allocator().size(buffer);
    std::list<Kept> dropped;
    {
      const std::lock_guard lock(mutex_);
      kept_.push_back({buffer, size});
      held_ += size;
      while (held_ > kMost) {  // the longest unused first
        held_ -= kept_.front().size;
        dropped.splice(dropped.end(), kept_, kept_.begin());
      }
    }
    free(dropped);
  }

  void clear() {
    std::list<Kept> dropped;
    {
      const std::lock_guard lock(mutex_);
      dropped.swap(kept_);
      held_ = 0;
    }
    free(dropped);
  }

 private:
  struct Kept {
    mx::allocator::Buffer buffer;
    size_t size;
  };

  static void free(const std::list<Kept>& list) {
    for (const Kept& kept : list) mx::allocator::allocator().free(kept.buffer);
  }

  std::mutex mutex_;
  std::list<Kept> kept_;  // oldest first
  size_t held_ = 0;
};

// Never destroyed: arrays may outlive any static object.
BufferCache& cache() {
  static auto* const instance = new BufferCache;
  return *instance;
}

}  // namespace

mx::allocator::Data cached_buffer(size_t bytes) {
  if (bytes < kLeast) return mx::allocator::malloc(bytes);
  return {cache().take(bytes), [](mx::allocator::Buffer buffer) { cache().give(buffer); }};
}

void clear_buffer_cache() {
  cache().clear();
  mx::clear_cache();  // where freed buffers are kept once more
  cpu::Scratch::release_all();
}

}  // namespace mere
