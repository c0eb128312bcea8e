#include "tensor/weights.h"

#include <cstring>
#include <gtest/gtest.h>

#include "core/error.h"

namespace mere {
namespace {

// One tensor "w.weight" [2, 2] of 2- or 4-byte values, its data at an odd or even offset.
class OneTensorFile {
 public:
  OneTensorFile(const std::string& type, const std::string& data, bool odd) {
    std::string name = (fs::temp_directory_path() / "mere-weights-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    std::string header = R"({"w.weight":{"dtype":")" + type +
                         R"(","shape":[2,2],"data_offsets":[0,)" + std::to_string(data.size()) +
                         "]}}";
    while ((header.size() % 2 != 0) != odd) header += ' ';
    const uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
    write_file_atomic(folder_ / "model.safetensors", bytes + header + data);
  }
  ~OneTensorFile() { fs::remove_all(folder_); }
  Weights open() const { return Weights::open(folder_); }

 private:
  fs::path folder_;
};

const std::string kBf16 = std::string("\x80\x3f\x00\x40\x00\xc0\x00\x00", 8);  // 1 2 -2 0
const std::string kF16 = std::string("\x00\x3c\x00\x40\x00\xc0\x00\x00", 8);

std::string f32_bytes() {
  const float values[] = {1, 2, -2, 0};
  return {reinterpret_cast<const char*>(values), sizeof values};
}

// The checkpoints of one writer have headers of any length, which leaves the data unaligned.
TEST(Weights, ReadsAlignedAndUnalignedData) {
  const std::vector<float> expected = {1, 2, -2, 0};
  for (const bool odd : {false, true}) {
    for (const auto& [type, data] : {std::pair<std::string, std::string>{"BF16", kBf16},
                                     {"F16", kF16},
                                     {"F32", f32_bytes()}}) {
      const OneTensorFile file(type, data, odd);
      const Weights weights = file.open();
      EXPECT_NO_THROW(weights.check_values());
      EXPECT_EQ(to_floats(weights.get_f32("w.weight", {2, 2})), expected) << type << odd;
      const LinearWeight w = weights.get_linear("w", 2, 2);
      const Array x = array_from(std::vector<float>{1, 0, 0, 1}, {2, 2});
      EXPECT_EQ(to_floats(linear(x, w)), (std::vector<float>{1, -2, 2, 0})) << type << odd;
    }
  }
}

TEST(Weights, FindsABadValueInUnalignedData) {
  for (const bool odd : {false, true}) {
    const OneTensorFile file("BF16", std::string("\x80\x3f\xc0\x7f\x00\xc0\x00\x00", 8), odd);
    try {
      file.open().check_values();
      ADD_FAILURE() << "NaN accepted";
    } catch (const IoError& e) {
      EXPECT_NE(std::string(e.what()).find("w.weight\" holds NaN"), std::string::npos) << e.what();
    }
  }
}

TEST(Weights, LooksOnlyAtWhatWasAskedForWhenTold) {
  const OneTensorFile file("BF16", std::string("\x80\x3f\xc0\x7f\x00\xc0\x00\x00", 8), false);
  const Weights weights = file.open();
  EXPECT_NO_THROW(weights.check_used_values());
  (void)weights.get("w.weight", {2, 2});
  EXPECT_THROW(weights.check_used_values(), IoError);
}

TEST(Weights, NamesWhatNothingUsed) {
  const OneTensorFile file("BF16", kBf16, false);
  const Weights weights = file.open();
  EXPECT_NO_THROW(weights.check_all_used({"other."}));
  EXPECT_THROW(weights.check_all_used({"w."}), IoError);
  (void)weights.get("w.weight", {2, 2});
  EXPECT_NO_THROW(weights.check_all_used({"w."}));
}

}  // namespace
}  // namespace mere
