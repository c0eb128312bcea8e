#include <cstring>
#include <gtest/gtest.h>
#include <string>

#include "pictures.h"

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "media/image.h"

namespace mere {
namespace {

using namespace test;

std::string digest(const Image& image) {
  return sha256_hex({reinterpret_cast<const char*>(image.rgb.data()), image.rgb.size()})
      .substr(0, 16);
}

// Made with Pillow 13.0.0: first 16 hex digits of the SHA-256 of
// Image.fromarray(picture).resize((to_width, to_height), Image.LANCZOS).tobytes().
TEST(Resize, EqualsPillowBitForBit) {
  struct Case {
    Image (*make)(int64_t, int64_t);
    int64_t width, height, to_width, to_height;
    const char* digest;
  };
  const Case cases[] = {
      {pattern, 37, 23, 64, 64, "427a6ba5e150980d"},
      {pattern, 37, 23, 111, 23, "cc41ad26527eb303"},
      {pattern, 37, 23, 37, 50, "93f19365ea15cb10"},
      {pattern, 64, 48, 13, 7, "8fedf221b71ecf06"},
      {pattern, 64, 48, 1, 1, "8ae40a3583aef669"},
      {pattern, 1, 1, 9, 5, "5068ae1d0040d422"},
      {pattern, 5, 1, 3, 4, "7f35a714e8d1d389"},
      {pattern, 1, 7, 2, 2, "1b4518a4087cfe53"},
      {pattern, 300, 200, 299, 201, "434899548971ee72"},
      {pattern, 257, 3, 31, 3, "64b02140307529b3"},
      {pattern, 200, 300, 77, 333, "182cc9f220a32ac1"},
      {pattern, 640, 2, 1, 2, "97d936da9b782f06"},
      {pattern, 16, 16, 16, 16, "2c0d05efe793f383"},
      {noise, 37, 23, 64, 64, "e9acf7a665b6d603"},
      {noise, 37, 23, 111, 23, "b9e05f2ad2472b2e"},
      {noise, 37, 23, 37, 50, "dc7e92561c0840ef"},
      {noise, 64, 48, 13, 7, "197ccf4e3799bf7a"},
      {noise, 64, 48, 1, 1, "cd695eca470b4ff4"},
      {noise, 1, 1, 9, 5, "5f7ab4c134e10715"},
      {noise, 5, 1, 3, 4, "a82368d9ceee9851"},
      {noise, 1, 7, 2, 2, "ecdbfd05765175a0"},
      {noise, 300, 200, 299, 201, "6dd6700f82ea4d9f"},
      {noise, 257, 3, 31, 3, "6ee2937a213d5c43"},
      {noise, 200, 300, 77, 333, "ad39b8717067e74a"},
      {noise, 640, 2, 1, 2, "340a89c806724afd"},
      {noise, 16, 16, 16, 16, "e8b77becefc5e524"},
      {hard, 37, 23, 64, 64, "fefe44b069724f09"},
      {hard, 37, 23, 111, 23, "fa7f32e17eec0764"},
      {hard, 37, 23, 37, 50, "eaf0c52bed28f134"},
      {hard, 64, 48, 13, 7, "c420a18974dbc7fc"},
      {hard, 64, 48, 1, 1, "37c1337e3bd1f8f0"},
      {hard, 1, 1, 9, 5, "6372d212baadba7b"},
      {hard, 5, 1, 3, 4, "e81613d245e01289"},
      {hard, 1, 7, 2, 2, "392a10f439516338"},
      {hard, 300, 200, 299, 201, "f0f9a194efcc3769"},
      {hard, 257, 3, 31, 3, "61a1ab20719f8718"},
      {hard, 200, 300, 77, 333, "c495f6d660d84947"},
      {hard, 640, 2, 1, 2, "a67606b888734a34"},
      {hard, 16, 16, 16, 16, "3b8b9573f90cdcf3"},
  };
  for (const Case& c : cases) {
    const Image out = resize_lanczos(c.make(c.width, c.height), c.to_width, c.to_height);
    EXPECT_EQ(out.width, c.to_width);
    EXPECT_EQ(out.height, c.to_height);
    EXPECT_EQ(digest(out), c.digest)
        << c.width << "x" << c.height << " to " << c.to_width << "x" << c.to_height;
  }
}

TEST(Resize, EqualsTheImageProcessorFixture) {
  const std::string file = read_file(
      fs::path(MERE_FIXTURES) / "klein" / "cases" / "image_processor.safetensors", 1 << 24);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const Json header = parse_json(std::string_view(file).substr(8, header_bytes), "fixture");
  const Json meta = parse_json(header["__metadata__"]["case"].get<std::string>(), "case");
  const Image out = resize_lanczos(pattern(meta["width"], meta["height"]), meta["resized_width"],
                                   meta["resized_height"]);
  const auto check = [&](const char* name, int64_t left, int64_t top) {
    const auto offsets = header[name]["data_offsets"].get<std::vector<size_t>>();
    const Image part = crop(out, left, top, 24, 24);
    ASSERT_EQ(part.rgb.size(), offsets[1] - offsets[0]);
    EXPECT_EQ(
        std::memcmp(part.rgb.data(), file.data() + 8 + header_bytes + offsets[0], part.rgb.size()),
        0)
        << name;
  };
  check("resized_topleft", 0, 0);
  check("resized_bottomright", out.width - 24, out.height - 24);
  check("resized_mid", meta["mid_offset"][1], meta["mid_offset"][0]);
}

TEST(Resize, KeepsFlatColours) {
  Image flat(31, 17);
  for (size_t i = 0; i < flat.rgb.size(); ++i) flat.rgb[i] = i % 3 == 0 ? 255 : i % 3 == 1 ? 0 : 77;
  for (const auto& [w, h] : {std::pair{5, 5}, {100, 3}, {31, 40}, {1, 1}}) {
    const Image out = resize_lanczos(flat, w, h);
    for (size_t i = 0; i < out.rgb.size(); ++i) ASSERT_EQ(out.rgb[i], flat.rgb[i % 3]);
  }
}

TEST(Resize, SizesThatCannotBeAreRefused) {
  const Image image = smooth(8, 8);
  for (const auto& [w, h] :
       {std::pair<int64_t, int64_t>{0, 4}, {4, -1}, {int64_t{1} << 40, 1}, {100000, 100000}}) {
    EXPECT_THROW(resize_lanczos(image, w, h), UsageError);
  }
  // Small at both ends, but not in between: rows are widened before columns shrink.
  EXPECT_THROW(resize_lanczos(Image(1, 1000000), 1000000, 1), UsageError);
  EXPECT_THROW(resize_lanczos(Image(), 4, 4), InternalError);
}

}  // namespace
}  // namespace mere
