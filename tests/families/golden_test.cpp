// Every golden case under tests/fixtures and beside the embedded model, one test each.
#include <cstring>
#include <functional>
#include <gtest/gtest.h>

#include "core/json.h"
#include "engine/validate.h"
#include "families/case_file.h"

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

class Pictures : public ::testing::TestWithParam<fs::path> {};

// Products in whatever type is fast here: pictures decide, and nothing fails.
TEST_P(Pictures, StayNearInAuto) {
  SilentProgress progress;
  const ValidateReport report = validate_images(
      {.family = "klein", .cases = GetParam(), .models_dir = {}, .precision = Precision::kAuto},
      progress);
  ASSERT_EQ(report.cases.size(), 1U);
  const CaseCheck& check = report.cases.front();
  EXPECT_EQ(check.problem, "");
  bool open = false;
  for (const TensorCheck& tensor : check.tensors) {
    EXPECT_TRUE(tensor.passed || !tensor.judged) << tensor.name << ": " << tensor.max_abs;
    EXPECT_TRUE(tensor.judged || tensor.name != "image");
    EXPECT_LT(tensor.rel_l2, 0.1) << tensor.name;
    open = open || !tensor.judged;
  }
  EXPECT_FALSE(open && report.compute_type == "float32");
  EXPECT_EQ(check.passed, check.judged);
  EXPECT_EQ(report.passed, check.judged);
}

std::string test_name(const ::testing::TestParamInfo<fs::path>& info) {
  std::string name =
      info.param.parent_path().parent_path().stem().string() + "_" + info.param.stem().string();
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

std::vector<fs::path> pipeline_cases() {
  std::vector<fs::path> files = all_cases();
  std::erase_if(files, [](const fs::path& file) {
    return file.extension() != ".safetensors" || CaseFile(file).kind() != "pipeline";
  });
  return files;
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, ::testing::ValuesIn(all_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(Cases, Pictures, ::testing::ValuesIn(pipeline_cases()), test_name);

// Whether a case of tests/fixtures/klein passes after one byte of it was changed, counted from
// `at`.
bool passes_altered(const std::string& file, const std::function<size_t(const std::string&)>& at,
                    Precision precision) {
  std::string name = (fs::temp_directory_path() / "mere-golden-XXXXXX").string();
  const fs::path root = ::mkdtemp(name.data());
  const fs::path fixtures = fs::path(MERE_FIXTURES) / "klein";
  fs::copy(fixtures / "model", root / "model", fs::copy_options::recursive);
  fs::create_directory(root / "cases");
  std::string bytes = read_file(fixtures / "cases" / file, 1 << 24);
  bytes[at(bytes)] ^= 0x40;
  write_file_atomic(root / "cases" / file, bytes);
  SilentProgress progress;
  const ValidateReport report = validate_images(
      {.family = "klein", .cases = root, .models_dir = root, .precision = precision}, progress);
  fs::remove_all(root);
  EXPECT_EQ(report.cases.size(), 1U);
  return report.passed;
}

// Offset in the file of the exponent of the first value of tensor "image".
size_t exponent_in_picture(const std::string& bytes) {
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const Json tensors = parse_json(bytes.substr(sizeof header, header), "header");
  const Json& offsets = tensors.at("image").at("data_offsets");
  return sizeof header + header + offsets.at(0).get<size_t>() + 3;
}

// A check that cannot fail is none: a case with one altered value must fail.
TEST(GoldenHarness, FailsOnAWrongValue) {
  const auto last = [](const std::string& bytes) { return bytes.size() - 1; };
  EXPECT_FALSE(passes_altered("vae_odd.safetensors", last, Precision::kFloat32));
  EXPECT_FALSE(passes_altered("pipeline_t2i.safetensors", exponent_in_picture, Precision::kAuto));
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
