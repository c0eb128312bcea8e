// Every golden case under tests/fixtures and beside the embedded model, one test each.
#include <gtest/gtest.h>

#include "engine/validate.h"

namespace mere {
namespace {

struct Folder {
  std::string name;
  fs::path cases;
};

std::vector<Folder> folders() {
  return {{"klein", fs::path(MERE_FIXTURES) / "klein" / "cases"},
          {"klein-more", fs::path(MERE_FIXTURES) / "klein-more" / "cases"},
          {"rng", fs::path(MERE_FIXTURES) / "rng"},
          {"emoji", fs::path(MERE_MODELS) / "image-emoji-nano" / "cases"}};
}

std::vector<fs::path> all_cases() {
  std::vector<fs::path> files;
  for (const Folder& folder : folders()) {
    for (const auto& entry : fs::directory_iterator(folder.cases)) {
      const fs::path extension = entry.path().extension();
      if (extension == ".safetensors" ||
          (extension == ".json" && entry.path().stem() != "MANIFEST")) {
        files.push_back(entry.path());
      }
    }
  }
  std::ranges::sort(files);
  return files;
}

class Golden : public ::testing::TestWithParam<fs::path> {};

TEST_P(Golden, MatchesTheReference) {
  SilentProgress progress;
  const ValidateReport report =
      validate_images({.family = "klein", .cases = GetParam(), .models_dir = {}}, progress);
  ASSERT_EQ(report.cases.size(), 1U);
  const CaseCheck& check = report.cases.front();
  EXPECT_EQ(check.problem, "");
  EXPECT_FALSE(check.tensors.empty());
  for (const TensorCheck& tensor : check.tensors) {
    EXPECT_TRUE(tensor.passed) << tensor.name << ": max abs " << tensor.max_abs << ", relative L2 "
                               << tensor.rel_l2 << " " << tensor.problem;
  }
  EXPECT_TRUE(report.passed);
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, ::testing::ValuesIn(all_cases()), [](const auto& info) {
  std::string name =
      info.param.parent_path().parent_path().stem().string() + "_" + info.param.stem().string();
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

// A check that cannot fail is none: a case with one altered value must fail.
TEST(GoldenHarness, FailsOnAWrongValue) {
  std::string name = (fs::temp_directory_path() / "mere-golden-XXXXXX").string();
  const fs::path root = ::mkdtemp(name.data());
  const fs::path fixtures = fs::path(MERE_FIXTURES) / "klein";
  fs::copy(fixtures / "model", root / "model", fs::copy_options::recursive);
  fs::create_directory(root / "cases");
  std::string bytes = read_file(fixtures / "cases" / "vae_odd.safetensors", 1 << 24);
  bytes[bytes.size() - 1] ^= 0x40;  // the exponent of the last value
  write_file_atomic(root / "cases" / "vae_odd.safetensors", bytes);
  SilentProgress progress;
  const ValidateReport report =
      validate_images({.family = "klein", .cases = root, .models_dir = root}, progress);
  EXPECT_FALSE(report.passed);
  fs::remove_all(root);
}

TEST(GoldenHarness, FailsWhenThereIsNoCase) {
  std::string name = (fs::temp_directory_path() / "mere-golden-XXXXXX").string();
  const fs::path root = ::mkdtemp(name.data());
  SilentProgress progress;
  EXPECT_FALSE(
      validate_images({.family = "klein", .cases = root, .models_dir = root}, progress).passed);
  fs::remove_all(root);
}

}  // namespace
}  // namespace mere
