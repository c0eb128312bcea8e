#include "kernels/cpu/scratch.h"

#include <gtest/gtest.h>

namespace mere::test {
namespace {

TEST(Scratch, KeepsItsMemoryUntilItIsReleased) {
  cpu::Scratch scratch;
  std::byte* const large = scratch.get(1 << 20);
  EXPECT_EQ(scratch.get(100), large);
  EXPECT_EQ(scratch.kept_bytes(), 1 << 20);
  cpu::Scratch::release_all();
  EXPECT_EQ(scratch.kept_bytes(), 1 << 20);  // until the thread asks again
  scratch.get(100);
  EXPECT_EQ(scratch.kept_bytes(), 100);
}

}  // namespace
}  // namespace mere::test
