#include "kernels/buffer_cache.h"

#include "arrays.h"

namespace mere::test {
namespace {

constexpr size_t kLarge = size_t{8} << 20;

TEST(BufferCache, HandsTheSameMemoryOutAgain) {
  clear_buffer_cache();
  void* first = nullptr;
  {
    const auto data = cached_buffer(kLarge);
    first = data.buffer().raw_ptr();
  }
  const auto again = cached_buffer(kLarge - 4096);
  EXPECT_EQ(again.buffer().raw_ptr(), first);
  const auto other = cached_buffer(kLarge);
  EXPECT_NE(other.buffer().raw_ptr(), first);
}

TEST(BufferCache, DoesNotWasteLargeBuffersOnSmallArrays) {
  clear_buffer_cache();
  void* first = nullptr;
  {
    const auto data = cached_buffer(kLarge);
    first = data.buffer().raw_ptr();
  }
  const auto small = cached_buffer(kLarge / 2);
  EXPECT_NE(small.buffer().raw_ptr(), first);
}

TEST(BufferCache, ArraysOutliveAClear) {
  mx::array a = random_array({1 << 10, 1 << 10}, 1);
  const mx::array b = mx::square(a);
  mx::eval(b);
  clear_buffer_cache();
  EXPECT_EQ(values_of(b).size(), size_t{1} << 20);
}

}  // namespace
}  // namespace mere::test
