#include "media/image.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "pictures.h"

#include "core/error.h"

namespace mere {
namespace {

using namespace test;

constexpr ImageFormat kFormats[] = {ImageFormat::kPng, ImageFormat::kJpeg, ImageFormat::kWebp};

const ImageText kText = {
    {"prompt", "a red apple, \xE3\x83\xAA\xE3\x83\xB3\xE3\x82\xB4 \xF0\x9F\x8D\x8E"},
    {"Negative prompt", "caf\xC3\xA9: \xC2\xA3 5"},
    {"seed", "42"},
    {"note", "first line\nsecond: line\n\n last"},
    {"empty", ""},
    {"seed", "43"},
};

TEST(Image, EveryFormatReturnsItsTextEntriesInOrder) {
  for (ImageFormat format : kFormats) {
    for (size_t count = 0; count <= kText.size(); ++count) {
      const ImageText text(kText.begin(), kText.begin() + static_cast<std::ptrdiff_t>(count));
      const std::string bytes = encode_image(smooth(19, 11), format, text);
      const ImageInfo info = decode_image_info(bytes, "a.file");
      EXPECT_EQ(info.text, text) << info.format << " " << count;
      EXPECT_EQ(info.width, 19);
      EXPECT_EQ(info.height, 11);
    }
  }
}

TEST(Image, LongTextSurvivesInEveryFormat) {
  // 65533 bytes is one full JPEG comment, where a naive split loses or invents an entry.
  const std::string prefix = "prompt: ";
  for (size_t size : {65533 - prefix.size() - 1, 65533 - prefix.size(), 65533 - prefix.size() + 1,
                      size_t{200000}}) {
    std::string value;
    while (value.size() < size) value += static_cast<char>('a' + value.size() % 26);
    const ImageText text = {{"prompt", value}, {"seed", "1"}};
    for (ImageFormat format : kFormats) {
      const std::string bytes = encode_image(smooth(8, 8), format, text);
      EXPECT_EQ(decode_image_info(bytes, "a").text, text) << size;
      EXPECT_EQ(decode_image(bytes, "a").width, 8);
    }
  }
}

TEST(Image, TextDoesNotChangePixelsAndIsAbsentWhenEmpty) {
  for (ImageFormat format : kFormats) {
    const Image image = smooth(40, 30);
    const std::string plain = encode_image(image, format, {});
    const std::string labelled = encode_image(image, format, kText);
    EXPECT_EQ(decode_image(plain, "a").rgb, decode_image(labelled, "a").rgb);
    EXPECT_LT(plain.size(), labelled.size());
    for (std::string_view mark : {"tEXt", "iTXt", "EXIF", "Exif", "tIME", "\xFF\xFE"}) {
      EXPECT_EQ(plain.find(mark), std::string::npos) << mark;
    }
  }
}

TEST(Image, IllFormedTextBecomesUtf8) {
  for (ImageFormat format : kFormats) {
    const std::string bytes =
        encode_image(smooth(8, 8), format, {{"prompt", std::string("a\0b\xFFz", 5)}});
    const ImageText text = decode_image_info(bytes, "a").text;
    ASSERT_EQ(text.size(), 1U);
    EXPECT_EQ(text[0].second,
              "a\xEF\xBF\xBD"
              "b\xEF\xBF\xBDz");
  }
}

TEST(Image, KeysThatAFormatCannotHoldAreRefused) {
  for (const char* key : {"", "a:b", " a", "a ", "a  b", "a\nb", "caf\xC3\xA9"}) {
    for (ImageFormat format : kFormats) {
      EXPECT_THROW(encode_image(smooth(8, 8), format, {{key, "x"}}), InternalError) << key;
    }
  }
  EXPECT_THROW(encode_image(smooth(8, 8), ImageFormat::kPng, {{std::string(80, 'k'), "x"}}),
               InternalError);
}

TEST(Image, EncodingIsDeterministic) {
  for (ImageFormat format : kFormats) {
    EXPECT_EQ(encode_image(noise(50, 40), format, kText),
              encode_image(noise(50, 40), format, kText));
  }
}

TEST(Image, RoundTripKeepsPixels) {
  for (const auto& [w, h] : {std::pair{1, 1}, {1, 9}, {17, 1}, {64, 48}, {33, 127}}) {
    EXPECT_EQ(decode_image(encode_image(noise(w, h), ImageFormat::kPng, {}), "a").rgb,
              noise(w, h).rgb);
    for (ImageFormat format : {ImageFormat::kJpeg, ImageFormat::kWebp}) {
      const Image image = smooth(w, h);
      EXPECT_LE(largest_difference(decode_image(encode_image(image, format, {}), "a"), image), 8)
          << w << "x" << h;
    }
  }
}

TEST(Image, OrientationIsAppliedInEveryFormat) {
  const Image upright = pattern(11, 7);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (bool big : {false, true}) {
      const Image stored = stored_for_orientation(upright, orientation);
      const std::string tiff = orientation_tiff(orientation, big);
      const auto check = [&](const std::string& plain, const std::string& turned) {
        // Lossy formats are compared with what the same bytes give without EXIF.
        const Image raw = decode_image(plain, "plain");
        const Image shown = decode_image(turned, "turned");
        EXPECT_EQ(stored_for_orientation(shown, orientation).rgb, raw.rgb) << orientation;
        EXPECT_EQ(shown.width, 11) << orientation;
        EXPECT_EQ(shown.height, 7) << orientation;
        const ImageInfo info = decode_image_info(turned, "turned");
        EXPECT_EQ(info.width, 11);
        EXPECT_EQ(info.height, 7);
        return shown;
      };
      const std::string png = encode_image(stored, ImageFormat::kPng, {});
      const Image shown = check(png, with_png_chunk(png, png_chunk("eXIf", tiff)));
      EXPECT_EQ(shown.rgb, upright.rgb) << orientation;
      const std::string jpeg = encode_image(stored, ImageFormat::kJpeg, {});
      check(jpeg, with_jpeg_segment(jpeg, 0xE1, std::string("Exif\0\0", 6) + tiff));
      const std::string webp = encode_image(stored, ImageFormat::kWebp, {});
      check(webp, with_webp_exif(webp, stored.width, stored.height, tiff));
      check(webp,
            with_webp_exif(webp, stored.width, stored.height, std::string("Exif\0\0", 6) + tiff));
    }
  }
}

TEST(Image, EveryPrefixOfAFileIsRefused) {
  for (ImageFormat format : kFormats) {
    const std::string bytes = encode_image(smooth(24, 20), format, kText);
    ASSERT_EQ(decode_image(bytes, "whole").width, 24);
    for (size_t size = 0; size < bytes.size(); ++size) {
      const std::string_view prefix = std::string_view(bytes).substr(0, size);
      EXPECT_NE(error_code("cut", [&] { decode_image(prefix, "cut"); }), "") << size;
      error_code("cut", [&] { decode_image_info(prefix, "cut"); });
    }
  }
}

TEST(Image, EveryFlippedByteIsRefusedOrGivesAPicture) {
  for (ImageFormat format : kFormats) {
    const std::string bytes = encode_image(smooth(10, 9), format, {{"seed", "1"}});
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (int flip : {0x01, 0x80, 0xFF}) {
        std::string broken = bytes;
        broken[i] = static_cast<char>(broken[i] ^ flip);
        const std::string code = error_code("bent", [&] { decode_image(broken, "bent"); });
        error_code("bent", [&] { decode_image_info(broken, "bent"); });
        // Every byte of a PNG is covered by a checksum.
        EXPECT_TRUE(format != ImageFormat::kPng || !code.empty()) << i;
      }
    }
  }
}

TEST(Image, BytesThatAreNoPictureAreRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("\x89"), std::string(1, '\0'), std::string("GIF89a1234567890"),
        std::string("version https://git-lfs.github.com/spec/v1\n"),
        std::string("RIFF\x04\0\0\0WAVE", 12), std::string("\xFF\xD8", 2)}) {
    EXPECT_EQ(error_code("odd.png", [&] { decode_image(bytes, "odd.png"); }), "image_format");
    EXPECT_EQ(error_code("odd.png", [&] { decode_image_info(bytes, "odd.png"); }), "image_format");
  }
}

TEST(Image, FilesAreRecognisedByContentNotByName) {
  const fs::path folder = fs::temp_directory_path() / ("media_test." + std::to_string(getpid()));
  const fs::path path = folder / "really_a_jpeg.png";
  write_file_atomic(path, encode_image(smooth(20, 10), ImageFormat::kJpeg, {{"seed", "7"}}));
  EXPECT_EQ(read_image(path).width, 20);
  EXPECT_EQ(read_image_info(path).format, "JPEG");
  EXPECT_EQ(read_image_info(path).text, (ImageText{{"seed", "7"}}));
  EXPECT_NE(error_code("absent.png", [&] { read_image(folder / "absent.png"); }), "");
  fs::remove_all(folder);
}

TEST(Image, FormatOfPath) {
  EXPECT_EQ(format_of_path("a.png"), ImageFormat::kPng);
  EXPECT_EQ(format_of_path("dir.webp/a.JPG"), ImageFormat::kJpeg);
  EXPECT_EQ(format_of_path("a.b.jPeG"), ImageFormat::kJpeg);
  EXPECT_EQ(format_of_path("a.WebP"), ImageFormat::kWebp);
  for (const char* path : {"a.gif", "a", "png", ".png", "a.png ", "dir.png/a", "a.", ""}) {
    try {
      format_of_path(path);
      ADD_FAILURE() << path;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.info().code, "output_format");
      EXPECT_NE(error.info().message.find(".png, .jpg, .jpeg, .webp"), std::string::npos);
    }
  }
}

TEST(Image, SidesThatAFormatCannotHoldAreRefusedBeforeWriting) {
  EXPECT_THROW(encode_image(Image(65501, 1), ImageFormat::kJpeg, {}), UsageError);
  EXPECT_THROW(encode_image(Image(1, 16384), ImageFormat::kWebp, {}), UsageError);
  EXPECT_NO_THROW(encode_image(Image(65501, 1), ImageFormat::kPng, {}));
  for (ImageFormat format : kFormats) {
    EXPECT_THROW(encode_image(Image(), format, {}), InternalError);
    Image lying(4, 4);
    lying.rgb.pop_back();
    EXPECT_THROW(encode_image(lying, format, {}), InternalError);
  }
}

TEST(Image, CropCutsOutAPart) {
  const Image image = pattern(9, 8);
  const Image part = crop(image, 2, 3, 4, 5);
  ASSERT_EQ(part.width, 4);
  ASSERT_EQ(part.height, 5);
  for (int64_t y = 0; y < 5; ++y) {
    for (int64_t x = 0; x < 12; ++x) {
      EXPECT_EQ(part.rgb[static_cast<size_t>(y * 12 + x)],
                image.rgb[static_cast<size_t>((y + 3) * 27 + 6 + x)]);
    }
  }
  EXPECT_EQ(crop(image, 0, 0, 9, 8).rgb, image.rgb);
  EXPECT_THROW(crop(image, 6, 0, 4, 1), InternalError);
  EXPECT_THROW(crop(image, 0, 4, 1, 5), InternalError);
  EXPECT_THROW(crop(image, -1, 0, 1, 1), InternalError);
  EXPECT_THROW(crop(image, 1, 0, INT64_MAX, 1), InternalError);
}

}  // namespace
}  // namespace mere
