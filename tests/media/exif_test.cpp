#include "media/exif.h"

#include <gtest/gtest.h>

#include "pictures.h"

namespace mere::media {
namespace {

using namespace test;

TEST(Exif, ReadsOrientationInBothByteOrders) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (bool big : {false, true}) {
      const std::string tiff = orientation_tiff(orientation, big);
      EXPECT_EQ(exif_orientation(tiff), orientation);
      EXPECT_EQ(exif_orientation(std::string("Exif\0\0", 6) + tiff), orientation);
    }
  }
  for (int odd : {0, 9, 255, 65535}) EXPECT_EQ(exif_orientation(orientation_tiff(odd, true)), 1);
}

TEST(Exif, HostileOffsetsCountAsAbsent) {
  const std::string good = orientation_tiff(6, false);
  for (size_t size = 0; size < 20; ++size) EXPECT_EQ(exif_orientation(good.substr(0, size)), 1);
  const auto with = [&](size_t at, const std::string& bytes) {
    std::string out = good;
    return out.replace(at, bytes.size(), bytes);
  };
  EXPECT_EQ(exif_orientation(with(4, "\xFF\xFF\xFF\xFF")), 1);    // IFD far outside
  EXPECT_EQ(exif_orientation(with(4, little_endian(25, 4))), 1);  // IFD at the very end
  EXPECT_EQ(exif_orientation(with(8, "\xFF\xFF")), 6);            // too many entries promised
  EXPECT_EQ(exif_orientation(with(10, std::string("\x13\x01", 2))), 1);  // another tag
  EXPECT_EQ(exif_orientation(with(12, std::string("\x04\x00", 2))), 1);  // another type
  EXPECT_EQ(exif_orientation(with(2, std::string("\x2B\x00", 2))), 1);   // BigTIFF
  EXPECT_EQ(exif_orientation("II"), 1);
  EXPECT_EQ(exif_orientation(""), 1);
}

TEST(Exif, UserCommentComesBack) {
  for (const std::string& text :
       {std::string("prompt: a red apple"), std::string("caf\xC3\xA9 \xF0\x9F\x8D\x8E"),
        std::string(), std::string(300000, 'x')}) {
    const std::string tiff = make_exif_user_comment(text);
    EXPECT_EQ(exif_user_comment(tiff), text);
    EXPECT_EQ(exif_orientation(tiff), 1);
    for (size_t size = 0; size < std::min<size_t>(tiff.size(), 80); ++size) {
      exif_user_comment(std::string_view(tiff).substr(0, size));
    }
    EXPECT_EQ(exif_user_comment(std::string_view(tiff).substr(0, tiff.size() - 1)), std::nullopt);
  }
}

TEST(Exif, UserCommentOfOtherWriters) {
  const auto tiff = [](const std::string& value) {
    return "MM" + big_endian(42, 2) + big_endian(8, 4) +                                     //
           big_endian(1, 2) + big_endian(0x8769, 2) + big_endian(4, 2) + big_endian(1, 4) +  //
           big_endian(26, 4) + big_endian(0, 4) +                                            //
           big_endian(1, 2) + big_endian(0x9286, 2) + big_endian(7, 2) +                     //
           big_endian(static_cast<uint32_t>(value.size()), 4) + big_endian(44, 4) +          //
           big_endian(0, 4) + value;
  };
  EXPECT_EQ(exif_user_comment(tiff(std::string("UNICODE\0\0h\0\xE9\0\0", 14))), "h\xC3\xA9");
  EXPECT_EQ(exif_user_comment(tiff(std::string("UNICODE\0\xFF\xFEh\0", 12))), "h");
  EXPECT_EQ(exif_user_comment(tiff(std::string("UNICODE\0\xD8\x3C", 10))), "\xEF\xBF\xBD");
  EXPECT_EQ(exif_user_comment(tiff(std::string("ASCII\0\0\0hello\0\0", 15))), "hello");
  EXPECT_EQ(exif_user_comment(tiff(std::string("\0\0\0\0\0\0\0\0caf\xE9", 12))), "caf\xC3\xA9");
  EXPECT_EQ(exif_user_comment(tiff("short")), std::nullopt);
  EXPECT_EQ(exif_user_comment(orientation_tiff(3, true)), std::nullopt);
}

}  // namespace
}  // namespace mere::media
