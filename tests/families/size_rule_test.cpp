#include <gtest/gtest.h>

#include "families/image_family.h"

namespace mere {
namespace {

std::string text(const std::vector<ImageSize>& sizes) {
  std::string out;
  for (const ImageSize size : sizes) {
    out += std::to_string(size.width) + "x" + std::to_string(size.height) + " ";
  }
  return out;
}

TEST(SizeRule, MultiplesOfSixteen) {
  const SizeRule rule;
  EXPECT_TRUE(is_legal_size(rule, {1024, 768}));
  EXPECT_TRUE(is_legal_size(rule, {64, 64}));
  for (const ImageSize bad :
       {ImageSize{1000, 750}, {1, 1}, {0, 0}, {-64, 64}, {48, 64}, {99999, 64}}) {
    EXPECT_FALSE(is_legal_size(rule, bad)) << bad.width << "x" << bad.height;
    for (const ImageSize near : nearest_legal_sizes(rule, bad)) {
      EXPECT_TRUE(is_legal_size(rule, near));
    }
  }
}

TEST(SizeRule, NamesTheNearest) {
  const SizeRule rule;
  EXPECT_EQ(text(nearest_legal_sizes(rule, {1000, 750})), "992x752 1008x752 ");
  EXPECT_EQ(text(nearest_legal_sizes(rule, {1024, 750})), "1024x752 1024x736 ");
  EXPECT_EQ(text(nearest_legal_sizes(rule, {1, 1})), "64x64 ");
  EXPECT_EQ(text(nearest_legal_sizes(rule, {-5, 100000})), "64x8192 ");
}

TEST(SizeRule, ListedSizesOnly) {
  const SizeRule rule{.only = {{128, 128}}};
  EXPECT_TRUE(is_legal_size(rule, {128, 128}));
  EXPECT_FALSE(is_legal_size(rule, {256, 256}));
  EXPECT_EQ(text(nearest_legal_sizes(rule, {512, 512})), "128x128 ");
}

}  // namespace
}  // namespace mere
