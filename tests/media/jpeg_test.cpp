#include <cstdio>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <jpeglib.h>
#include <string>
#include <vector>

#include "pictures.h"

#include "media/image.h"

namespace mere {
namespace {

using namespace test;

// Compresses [height, width, channels] samples; `tune` may change any setting before the start.
std::string make_jpeg(int64_t width, int64_t height, int channels, J_COLOR_SPACE space,
                      const std::vector<uint8_t>& samples,
                      const std::function<void(jpeg_compress_struct&)>& tune = {}) {
  jpeg_compress_struct cinfo{};
  jpeg_error_mgr error;
  cinfo.err = jpeg_std_error(&error);
  jpeg_create_compress(&cinfo);
  unsigned char* out = nullptr;
  unsigned long out_bytes = 0;
  jpeg_mem_dest(&cinfo, &out, &out_bytes);
  cinfo.image_width = static_cast<JDIMENSION>(width);
  cinfo.image_height = static_cast<JDIMENSION>(height);
  cinfo.input_components = channels;
  cinfo.in_color_space = space;
  jpeg_set_defaults(&cinfo);
  jpeg_set_quality(&cinfo, 98, TRUE);
  if (tune) tune(cinfo);
  jpeg_start_compress(&cinfo, TRUE);
  while (cinfo.next_scanline < cinfo.image_height) {
    auto* row = const_cast<JSAMPROW>(samples.data()) +
                static_cast<size_t>(cinfo.next_scanline) * static_cast<size_t>(width * channels);
    jpeg_write_scanlines(&cinfo, &row, 1);
  }
  jpeg_finish_compress(&cinfo);
  jpeg_destroy_compress(&cinfo);
  std::string bytes(reinterpret_cast<char*>(out), out_bytes);
  std::free(out);
  return bytes;
}

std::string rgb_jpeg(const Image& image, const std::function<void(jpeg_compress_struct&)>& tune) {
  return make_jpeg(image.width, image.height, 3, JCS_RGB, image.rgb, tune);
}

TEST(Jpeg, GrayBecomesRgb) {
  std::vector<uint8_t> gray;
  Image expected(40, 24);
  for (size_t i = 0; i < 40 * 24; ++i) {
    gray.push_back(static_cast<uint8_t>(i % 40 * 6));
    for (size_t c = 0; c < 3; ++c) expected.rgb[i * 3 + c] = gray.back();
  }
  const Image image = decode_image(make_jpeg(40, 24, 1, JCS_GRAYSCALE, gray), "gray");
  EXPECT_LE(largest_difference(image, expected), 3);
  EXPECT_EQ(image.rgb[30], image.rgb[31]);
}

TEST(Jpeg, ProgressiveAndRestartMarkersEqualBaseline) {
  const Image image = smooth(70, 50);
  const Image baseline = decode_image(rgb_jpeg(image, {}), "baseline");
  EXPECT_LE(largest_difference(baseline, image), 8);
  const auto progressive = [](jpeg_compress_struct& cinfo) { jpeg_simple_progression(&cinfo); };
  EXPECT_EQ(decode_image(rgb_jpeg(image, progressive), "progressive").rgb, baseline.rgb);
  const auto restarts = [](jpeg_compress_struct& cinfo) { cinfo.restart_interval = 1; };
  EXPECT_EQ(decode_image(rgb_jpeg(image, restarts), "restarts").rgb, baseline.rgb);
}

TEST(Jpeg, CmykAndYcckBecomeRgb) {
  // Inverted samples, as the Adobe marker announces: 255 is no ink.
  const Image image = smooth(48, 32);
  for (J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
    std::vector<uint8_t> cmyk;
    Image expected(48, 32);
    for (size_t i = 0; i < 48 * 32; ++i) {
      const uint8_t key = 200;
      for (size_t c = 0; c < 3; ++c) {
        cmyk.push_back(image.rgb[i * 3 + c]);
        expected.rgb[i * 3 + c] = static_cast<uint8_t>(image.rgb[i * 3 + c] * key / 255);
      }
      cmyk.push_back(key);
    }
    const std::string bytes =
        make_jpeg(48, 32, 4, JCS_CMYK, cmyk, [&](jpeg_compress_struct& cinfo) {
          jpeg_set_colorspace(&cinfo, stored);
          cinfo.write_Adobe_marker = TRUE;
        });
    EXPECT_LE(largest_difference(decode_image(bytes, "cmyk"), expected), 9);
  }
}

TEST(Jpeg, EveryPrefixOfOtherKindsIsRefused) {
  const Image image = smooth(33, 20);
  const std::string kinds[] = {
      rgb_jpeg(image, [](jpeg_compress_struct& cinfo) { jpeg_simple_progression(&cinfo); }),
      rgb_jpeg(image, [](jpeg_compress_struct& cinfo) { cinfo.restart_interval = 2; })};
  for (const std::string& bytes : kinds) {
    ASSERT_EQ(decode_image(bytes, "whole").width, 33);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_NE(error_code("cut", [&] { decode_image(bytes.substr(0, size), "cut"); }), "") << size;
    }
  }
}

TEST(Jpeg, CutDataWithAnEndMarkerIsStillRefused) {
  const std::string bytes = rgb_jpeg(noise(64, 64), {});
  for (size_t keep : {bytes.size() / 2, bytes.size() - 40}) {
    EXPECT_EQ(error_code("half", [&] { decode_image(bytes.substr(0, keep) + "\xFF\xD9", "half"); }),
              "image_damaged");
  }
}

TEST(Jpeg, TooManyScansAreRefused) {
  // One scan for every coefficient of every component: valid, and 190 scans.
  std::vector<jpeg_scan_info> script{{3, {0, 1, 2}, 0, 0, 0, 0}};
  for (int component = 0; component < 3; ++component) {
    for (int k = 1; k < 64; ++k) script.push_back({1, {component}, k, k, 0, 0});
  }
  const auto scans = [&](int count) {
    return rgb_jpeg(smooth(16, 16), [&](jpeg_compress_struct& cinfo) {
      cinfo.scan_info = script.data();
      cinfo.num_scans = count;
    });
  };
  EXPECT_EQ(decode_image(scans(100), "scans").width, 16);
  try {
    decode_image(scans(190), "scans");
    ADD_FAILURE();
  } catch (const IoError& error) {
    EXPECT_NE(error.info().message.find("more than 100 scans"), std::string::npos) << error.what();
  }
}

TEST(Jpeg, ScansThatRepeatThemselvesAreRefused) {
  std::string bytes = rgb_jpeg(
      smooth(16, 16), [](jpeg_compress_struct& cinfo) { jpeg_simple_progression(&cinfo); });
  const size_t last = bytes.rfind("\xFF\xDA");
  const std::string scan = bytes.substr(last, bytes.size() - 2 - last);
  bytes.resize(bytes.size() - 2);
  EXPECT_EQ(error_code("twice", [&] { decode_image(bytes + scan + "\xFF\xD9", "twice"); }),
            "image_damaged");
}

TEST(Jpeg, HugeAndEmptySizesAreRefused) {
  std::string bytes = encode_image(smooth(16, 16), ImageFormat::kJpeg, {});
  const size_t frame = bytes.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  const auto with_size = [&](uint32_t width, uint32_t height) {
    return std::string(bytes).replace(frame + 5, 4, big_endian(height, 2) + big_endian(width, 2));
  };
  EXPECT_EQ(error_code("big.jpg", [&] { decode_image(with_size(60000, 60000), "big.jpg"); }),
            "image_too_large");
  EXPECT_EQ(error_code("a", [&] { decode_image(with_size(0, 16), "a"); }), "image_damaged");
  EXPECT_EQ(error_code("a", [&] { decode_image(with_size(16, 0), "a"); }), "image_damaged");
  EXPECT_EQ(error_code("a", [&] { decode_image(with_size(800, 600), "a"); }), "image_damaged");
}

TEST(Jpeg, DamagedSegmentsAreRefused) {
  for (const std::string& rest :
       {std::string("\xE0\x00\x00", 3), std::string("\xE0\x00\x01", 3), std::string("\xD9", 1),
        std::string("\xDA\x00\x02", 3), std::string("\xC0\x00\x03\x08", 4),
        std::string("\xE1\xFF\xFF", 3), std::string(100, '\xFF'), std::string(100, '\0')}) {
    const std::string bytes = "\xFF\xD8\xFF" + rest;
    EXPECT_EQ(error_code("bad", [&] { decode_image(bytes, "bad"); }), "image_damaged");
    EXPECT_EQ(error_code("bad", [&] { decode_image_info(bytes, "bad"); }), "image_damaged");
  }
}

TEST(Jpeg, CommentsOfOtherWritersAreRead) {
  const std::string good = encode_image(smooth(16, 16), ImageFormat::kJpeg, {});
  const auto text = [&](std::string_view comment) {
    return decode_image_info(with_jpeg_segment(good, 0xFE, comment), "a").text;
  };
  EXPECT_EQ(text("made by hand"), (ImageText{{"Comment", "made by hand"}}));
  EXPECT_EQ(text("caf\xE9"), (ImageText{{"Comment", "caf\xC3\xA9"}}));
  EXPECT_EQ(text(""), ImageText{});
  EXPECT_EQ(text(std::string(65533, 'x')).at(0).second.size(), 65533U);
}

TEST(Jpeg, ChromaIsStoredAtFullResolution) {
  const std::string bytes = encode_image(smooth(16, 16), ImageFormat::kJpeg, {});
  const size_t frame = bytes.find("\xFF\xC0");
  for (size_t component = 0; component < 3; ++component) {
    EXPECT_EQ(bytes[frame + 11 + component * 3], 0x11);
  }
}

}  // namespace
}  // namespace mere
