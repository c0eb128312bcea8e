#include "catalog/glob.h"

#include <gtest/gtest.h>

namespace mere {
namespace {

TEST(Glob, StarStaysInAFolderAndTwoCrossThem) {
  EXPECT_TRUE(glob_match("a/*", "a/b.json"));
  EXPECT_FALSE(glob_match("a/*", "a/b/c.json"));
  EXPECT_FALSE(glob_match("*.json", "a/b.json"));
  EXPECT_TRUE(glob_match("**.json", "a/b.json"));
  EXPECT_TRUE(glob_match("a/**", "a/b/c.json"));
  EXPECT_FALSE(glob_match("a/**", "a"));
  EXPECT_TRUE(glob_match("**/*.json", "b.json"));
  EXPECT_TRUE(glob_match("**/*.json", "a/b/c.json"));
  EXPECT_FALSE(glob_match("**/b.json", "a/ab.json"));
  EXPECT_TRUE(glob_match("a/**/z", "a/z"));
  EXPECT_TRUE(glob_match("a/**/z", "a/b/c/z"));
  EXPECT_FALSE(glob_match("a/**/z", "a/bz"));
}

TEST(Glob, OtherCharactersStandForThemselves) {
  EXPECT_TRUE(glob_match("model-0000?-of-0000?.safetensors", "model-00001-of-00002.safetensors"));
  EXPECT_FALSE(glob_match("a?b", "a/b"));
  EXPECT_FALSE(glob_match("A", "a"));
  EXPECT_TRUE(glob_match("[a].(b)+", "[a].(b)+"));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_FALSE(glob_match("a", ""));
}

TEST(Glob, TakesNoLongerForAHostilePattern) {
  const std::string path(250, 'a');
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "*a**";
  EXPECT_FALSE(glob_match(pattern + "b", path));
}

TEST(Glob, SelectsByIncludeThenExclude) {
  EXPECT_TRUE(is_selected({}, {}, "anything"));
  EXPECT_TRUE(is_selected({"vae/*"}, {}, "vae/x"));
  EXPECT_FALSE(is_selected({"vae/*"}, {}, "unet/x"));
  EXPECT_FALSE(is_selected({}, {"*.md"}, "README.md"));
  EXPECT_FALSE(is_selected({"**"}, {"raw.safetensors"}, "raw.safetensors"));
}

}  // namespace
}  // namespace mere
