#include <gtest/gtest.h>
#include <string>
#include <webp/encode.h>

#include "pictures.h"

#include "media/exif.h"
#include "media/image.h"

namespace mere {
namespace {

using namespace test;

std::string take(uint8_t* bytes, size_t size) {
  std::string out(reinterpret_cast<char*>(bytes), size);
  WebPFree(bytes);
  return out;
}

std::string lossless(const Image& image) {
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeLosslessRGB(image.rgb.data(), static_cast<int>(image.width),
                                            static_cast<int>(image.height),
                                            static_cast<int>(image.width * 3), &out);
  return take(out, size);
}

TEST(Webp, LosslessIsReadExactly) {
  const Image image = noise(37, 23);
  EXPECT_EQ(decode_image(lossless(image), "lossless").rgb, image.rgb);
}

TEST(Webp, AlphaIsDropped) {
  const Image image = smooth(32, 20);
  std::vector<uint8_t> rgba;
  for (size_t i = 0; i < 32 * 20; ++i) {
    for (size_t c = 0; c < 3; ++c) rgba.push_back(image.rgb[i * 3 + c]);
    rgba.push_back(static_cast<uint8_t>(100 + i % 100));
  }
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeRGBA(rgba.data(), 32, 20, 32 * 4, 98, &out);
  EXPECT_LE(largest_difference(decode_image(take(out, size), "alpha"), image), 8);
  const size_t exact = WebPEncodeLosslessRGBA(rgba.data(), 32, 20, 32 * 4, &out);
  EXPECT_EQ(decode_image(take(out, exact), "alpha").rgb, image.rgb);
}

TEST(Webp, EveryPrefixOfOtherKindsIsRefused) {
  const std::string bytes = lossless(noise(9, 9));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(error_code("cut", [&] { decode_image(bytes.substr(0, size), "cut"); }), "") << size;
  }
}

TEST(Webp, PictureDataCutInsideAWholeContainerIsRefused) {
  for (const std::string& bytes :
       {lossless(noise(40, 40)), encode_image(noise(40, 40), ImageFormat::kWebp, {})}) {
    const std::string type = bytes.substr(12, 4);
    const std::string data = bytes.substr(20, (bytes.size() - 20) / 2);
    const std::string half = riff(riff_chunk(type, data));
    EXPECT_EQ(error_code("half", [&] { decode_image(half, "half"); }), "image_damaged") << type;
  }
}

TEST(Webp, AnimationsAreRefusedByName) {
  const std::string still = encode_image(smooth(16, 16), ImageFormat::kWebp, {}).substr(12);
  const std::string size = little_endian(15, 3) + little_endian(15, 3);
  const std::string flagged = riff_chunk("VP8X", little_endian(0x02, 4) + size);
  const std::string unflagged = riff_chunk("VP8X", little_endian(0, 4) + size);
  for (const std::string& chunks :
       {flagged + still, flagged, unflagged + riff_chunk("ANIM", "123456") + still,
        unflagged + riff_chunk("ANMF", std::string(16, '\0') + still)}) {
    EXPECT_EQ(error_code("moving.webp", [&] { decode_image(riff(chunks), "moving.webp"); }),
              "image_animated");
  }
}

TEST(Webp, HugeSizesAreRefused) {
  const std::string still = encode_image(smooth(16, 16), ImageFormat::kWebp, {}).substr(12);
  const std::string extended =
      riff_chunk("VP8X", little_endian(0, 4) + little_endian(59999, 3) + little_endian(59999, 3));
  EXPECT_EQ(error_code("big", [&] { decode_image(riff(extended + still), "big"); }),
            "image_too_large");
}

TEST(Webp, DamagedContainersAreRefused) {
  const std::string still = encode_image(smooth(16, 16), ImageFormat::kWebp, {}).substr(12);
  for (const std::string& bytes :
       {riff(""), riff("VP8 "), riff("VP8 \xFF\xFF\xFF\xFF"), riff(riff_chunk("VP8X", "12")),
        riff(riff_chunk("VP8 ", "")), riff(riff_chunk("VP8L", "\x2F")),
        riff(riff_chunk("EXIF", "x")), riff(still + "EXIF\x50"),
        "RIFF" + little_endian(0xFFFFFFFF, 4) + "WEBP" + still,
        "RIFF" + little_endian(0, 4) + "WEBP" + still}) {
    EXPECT_EQ(error_code("bad", [&] { decode_image(bytes, "bad"); }), "image_damaged");
    EXPECT_EQ(error_code("bad", [&] { decode_image_info(bytes, "bad"); }), "image_damaged");
  }
}

TEST(Webp, UserCommentOfOtherWritersIsOneEntry) {
  const std::string plain = encode_image(smooth(16, 16), ImageFormat::kWebp, {});
  const std::string bytes =
      with_webp_exif(plain, 16, 16, media::make_exif_user_comment("taken on a walk"));
  EXPECT_EQ(decode_image_info(bytes, "a").text, (ImageText{{"Comment", "taken on a walk"}}));
}

TEST(Webp, TextIsWrittenInTheExtendedLayout) {
  const std::string bytes = encode_image(smooth(300, 17), ImageFormat::kWebp, {{"seed", "1"}});
  EXPECT_EQ(bytes.substr(0, 4), "RIFF");
  EXPECT_EQ(bytes.substr(4, 4), little_endian(static_cast<uint32_t>(bytes.size() - 8), 4));
  EXPECT_EQ(bytes.substr(8, 8), "WEBPVP8X");
  EXPECT_EQ(bytes.substr(16, 14), little_endian(10, 4) + little_endian(8, 4) +
                                      little_endian(299, 3) + little_endian(16, 3));
  EXPECT_EQ(bytes.substr(30, 4), "VP8 ");
}

}  // namespace
}  // namespace mere
