#include <gtest/gtest.h>
#include <png.h>
#include <string>
#include <vector>
#include <zlib.h>

#include "pictures.h"

#include "media/image.h"

namespace mere {
namespace {

using namespace test;

struct RawPng {
  int64_t width = 0;
  int64_t height = 0;
  int depth = 8;
  int color = PNG_COLOR_TYPE_RGB;
  bool interlaced = false;
  std::vector<uint8_t> rows;  // as libpng takes them, each row padded to a byte
  std::vector<png_color> palette;
  std::string transparency;  // payload of tRNS
};

void append_bytes(png_structp png, png_bytep bytes, size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(bytes), size);
}

std::string make_png(const RawPng& raw) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &out, append_bytes, [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(raw.width), static_cast<png_uint_32>(raw.height),
               raw.depth, raw.color, raw.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!raw.palette.empty()) {
    png_set_PLTE(png, info, raw.palette.data(), static_cast<int>(raw.palette.size()));
  }
  png_write_info(png, info);
  if (!raw.transparency.empty()) {
    png_write_chunk(png, reinterpret_cast<png_const_bytep>("tRNS"),
                    reinterpret_cast<png_const_bytep>(raw.transparency.data()),
                    raw.transparency.size());
  }
  const size_t stride = raw.rows.size() / static_cast<size_t>(raw.height);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < raw.height; ++y) {
    rows.push_back(const_cast<png_bytep>(raw.rows.data()) + static_cast<size_t>(y) * stride);
  }
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

// A picture of 21 x 10 values 0 <= v < 2^depth, packed; and the values.
std::vector<int> fill_packed(RawPng& raw) {
  raw.width = 21;
  raw.height = 10;
  std::vector<int> values;
  const int64_t stride = (raw.width * raw.depth + 7) / 8;
  raw.rows.assign(static_cast<size_t>(stride * raw.height), 0);
  for (int64_t y = 0; y < raw.height; ++y) {
    for (int64_t x = 0; x < raw.width; ++x) {
      const int value = static_cast<int>((x * 5 + y * 3) % (1 << raw.depth));
      values.push_back(value);
      const int64_t bit = x * raw.depth;
      raw.rows[static_cast<size_t>(y * stride + bit / 8)] |=
          static_cast<uint8_t>(value << (8 - raw.depth - bit % 8));
    }
  }
  return values;
}

TEST(Png, GrayOfEveryDepth) {
  for (bool interlaced : {false, true}) {
    for (int depth : {1, 2, 4, 8}) {
      RawPng raw;
      raw.depth = depth;
      raw.color = PNG_COLOR_TYPE_GRAY;
      raw.interlaced = interlaced;
      const std::vector<int> values = fill_packed(raw);
      // A transparent gray level does not change its colour.
      for (const std::string& transparency : {std::string(), std::string("\0\1", 2)}) {
        raw.transparency = transparency;
        const Image image = decode_image(make_png(raw), "gray");
        ASSERT_EQ(image.width, raw.width);
        for (size_t i = 0; i < values.size(); ++i) {
          const int gray = values[i] * 255 / ((1 << depth) - 1);
          for (size_t c = 0; c < 3; ++c) ASSERT_EQ(image.rgb[i * 3 + c], gray) << depth;
        }
      }
    }
  }
}

TEST(Png, PaletteOfEveryDepthKeepsTheColourUnderTransparency) {
  for (bool interlaced : {false, true}) {
    for (int depth : {1, 2, 4, 8}) {
      RawPng raw;
      raw.depth = depth;
      raw.color = PNG_COLOR_TYPE_PALETTE;
      raw.interlaced = interlaced;
      for (int i = 0; i < 1 << depth; ++i) {
        raw.palette.push_back({static_cast<png_byte>(i * 37), static_cast<png_byte>(255 - i),
                               static_cast<png_byte>(i * i)});
      }
      const std::vector<int> values = fill_packed(raw);
      for (const std::string& transparency : {std::string(), std::string("\0\x80", 2)}) {
        raw.transparency = transparency;
        const Image image = decode_image(make_png(raw), "palette");
        for (size_t i = 0; i < values.size(); ++i) {
          const png_color color = raw.palette[static_cast<size_t>(values[i])];
          ASSERT_EQ(image.rgb[i * 3], color.red);
          ASSERT_EQ(image.rgb[i * 3 + 1], color.green);
          ASSERT_EQ(image.rgb[i * 3 + 2], color.blue);
        }
      }
    }
  }
}

TEST(Png, AlphaIsDroppedAndColourKept) {
  const Image image = noise(9, 8);
  for (bool gray : {false, true}) {
    RawPng raw;
    raw.width = 9;
    raw.height = 8;
    raw.color = gray ? PNG_COLOR_TYPE_GRAY_ALPHA : PNG_COLOR_TYPE_RGB_ALPHA;
    Image expected(9, 8);
    for (size_t i = 0; i < 72; ++i) {
      for (size_t c = 0; c < 3; ++c) expected.rgb[i * 3 + c] = image.rgb[i * 3 + (gray ? 0 : c)];
      for (size_t c = 0; c < (gray ? 1U : 3U); ++c) raw.rows.push_back(image.rgb[i * 3 + c]);
      raw.rows.push_back(i % 3 == 0 ? 0 : static_cast<uint8_t>(i));
    }
    EXPECT_EQ(decode_image(make_png(raw), "alpha").rgb, expected.rgb);
  }
}

TEST(Png, TransparentColourIsKept) {
  RawPng raw;
  raw.width = raw.height = 4;
  const Image image = noise(4, 4);
  raw.rows = image.rgb;
  raw.transparency =
      std::string{0, static_cast<char>(image.rgb[0]), 0, static_cast<char>(image.rgb[1]),
                  0, static_cast<char>(image.rgb[2])};
  EXPECT_EQ(decode_image(make_png(raw), "key").rgb, image.rgb);
}

TEST(Png, SixteenBitsAreRounded) {
  const int colors[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                        PNG_COLOR_TYPE_RGB_ALPHA};
  const size_t channels[] = {1, 2, 3, 4};
  for (size_t kind = 0; kind < 4; ++kind) {
    RawPng raw;
    raw.width = 64;
    raw.height = 16;
    raw.depth = 16;
    raw.color = colors[kind];
    std::vector<int> values;
    for (size_t i = 0; i < 64 * 16 * channels[kind]; ++i) {
      values.push_back(static_cast<int>(i * 7919 % 65536));
      raw.rows.push_back(static_cast<uint8_t>(values.back() >> 8));
      raw.rows.push_back(static_cast<uint8_t>(values.back()));
    }
    const Image image = decode_image(make_png(raw), "deep");
    for (size_t i = 0; i < 64 * 16; ++i) {
      for (size_t c = 0; c < 3; ++c) {
        const int value = values[i * channels[kind] + (channels[kind] > 2 ? c : 0)];
        ASSERT_EQ(image.rgb[i * 3 + c], (value * 255 + 32767) / 65535) << value;
      }
    }
  }
}

TEST(Png, InterlacedColourEqualsPlain) {
  RawPng raw;
  raw.interlaced = true;
  for (const auto& [w, h] : {std::pair{1, 1}, {3, 2}, {8, 8}, {21, 34}}) {
    raw.width = w;
    raw.height = h;
    raw.rows = noise(w, h).rgb;
    EXPECT_EQ(decode_image(make_png(raw), "interlaced").rgb, raw.rows);
  }
}

TEST(Png, EveryPrefixOfOtherKindsIsRefused) {
  RawPng raw;
  raw.depth = 4;
  raw.color = PNG_COLOR_TYPE_PALETTE;
  raw.interlaced = true;
  raw.palette.assign(16, {1, 2, 3});
  fill_packed(raw);
  const std::string bytes = make_png(raw);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(error_code("cut", [&] { decode_image(bytes.substr(0, size), "cut"); }), "") << size;
  }
}

TEST(Png, HugeSizesAreRefusedFromTheHeaderAlone) {
  for (const auto& [w, h] : {std::pair<uint32_t, uint32_t>{60000, 60000},
                             {0x7FFFFFFF, 0x7FFFFFFF},
                             {0xFFFFFFFF, 0xFFFFFFFF},
                             {2000000, 1},
                             {8193, 8192}}) {
    const std::string bytes = std::string(kPngSignature) + png_ihdr(w, h);
    EXPECT_EQ(error_code("huge.png", [&] { decode_image(bytes, "huge.png"); }), "image_too_large");
    EXPECT_EQ(error_code("huge.png", [&] { decode_image_info(bytes, "huge.png"); }),
              "image_too_large");
  }
  try {
    decode_image(std::string(kPngSignature) + png_ihdr(60000, 60000), "huge.png");
  } catch (const IoError& error) {
    const std::string what = error.what();
    for (const char* part : {"huge.png", "60000x60000", "67108864"}) {
      EXPECT_NE(what.find(part), std::string::npos) << what;
    }
  }
}

TEST(Png, SizeWithoutDataIsRefusedBeforeAllocating) {
  const std::string bytes = std::string(kPngSignature) + png_ihdr(8192, 8192) +
                            png_chunk("IDAT", "x") + png_chunk("IEND", "");
  EXPECT_EQ(error_code("empty.png", [&] { decode_image(bytes, "empty.png"); }), "image_damaged");
}

TEST(Png, DamagedHeadersAreRefused) {
  const std::string end = png_chunk("IDAT", "x") + png_chunk("IEND", "");
  const auto refused = [&](const std::string& chunks) {
    return error_code("bad", [&] { decode_image(std::string(kPngSignature) + chunks, "bad"); });
  };
  EXPECT_EQ(refused(png_ihdr(0, 5) + end), "image_damaged");
  EXPECT_EQ(refused(png_ihdr(5, 0) + end), "image_damaged");
  EXPECT_EQ(refused(png_ihdr(5, 5)), "image_damaged");
  EXPECT_EQ(refused(end), "image_damaged");
  EXPECT_EQ(refused(png_ihdr(5, 5) + end), "image_damaged");
  EXPECT_EQ(refused(png_ihdr(5, 5) + png_chunk("IEND", "")), "image_damaged");
  EXPECT_EQ(refused(png_ihdr(5, 5) + "\xFF\xFF\xFF\xFFIDAT"), "image_damaged");
  for (const char* rest : {"\x03\x02", "\x08\x05", "\x08\x07", "\x20\x02", "\x10\x03"}) {
    const std::string ihdr = png_chunk(
        "IHDR", big_endian(4, 4) + big_endian(4, 4) + std::string(rest, 2) + std::string(3, '\0'));
    EXPECT_EQ(refused(ihdr + end), "image_damaged") << rest;
  }
}

TEST(Png, WrongChecksumOfAnyChunkIsAnError) {
  const std::string good = encode_image(smooth(9, 9), ImageFormat::kPng, {});
  std::string text = png_chunk("tEXt", std::string("a\0b", 3));
  text.back() ^= 1;
  EXPECT_EQ(error_code("crc", [&] { decode_image(with_png_chunk(good, text), "crc"); }),
            "image_damaged");
}

TEST(Png, BytesAfterTheEndAreIgnored) {
  const std::string bytes = encode_image(smooth(9, 9), ImageFormat::kPng, {}) + "trailing";
  EXPECT_EQ(decode_image(bytes, "a").rgb, smooth(9, 9).rgb);
}

std::string deflate_all(const std::string& text) {
  std::string out(compressBound(text.size()), '\0');
  uLongf size = out.size();
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
           text.size());
  out.resize(size);
  return out;
}

TEST(Png, CompressedTextIsRead) {
  const std::string good = encode_image(smooth(9, 9), ImageFormat::kPng, {});
  const std::string nul(1, '\0');
  const std::string ztxt = png_chunk("zTXt", "One" + nul + nul + deflate_all("caf\xE9"));
  const std::string itxt = png_chunk(
      "iTXt", "Two" + nul + "\1" + nul + "de" + nul + "Zwei" + nul + deflate_all("\xE2\x82\xAC"));
  const ImageText expected = {{"One", "caf\xC3\xA9"}, {"Two", "\xE2\x82\xAC"}};
  const std::string bytes = with_png_chunk(good, ztxt + itxt);
  EXPECT_EQ(decode_image_info(bytes, "a").text, expected);
  // Text after the picture data counts too.
  const std::string late =
      good.substr(0, good.size() - 12) + ztxt + itxt + good.substr(good.size() - 12);
  EXPECT_EQ(decode_image_info(late, "a").text, expected);
}

TEST(Png, TextBombsAreRefusedAndDoNotStopThePicture) {
  const std::string good = encode_image(smooth(9, 9), ImageFormat::kPng, {});
  const std::string nul(1, '\0');
  const std::string bomb = deflate_all(std::string(20 << 20, 'a'));
  std::string many;
  for (int i = 0; i < 1001; ++i) many += png_chunk("tEXt", "k" + nul + "v");
  for (const std::string& chunk :
       {png_chunk("zTXt", "k" + nul + nul + bomb),
        png_chunk("iTXt", "k" + nul + "\1" + nul + nul + nul + bomb),
        png_chunk("zTXt", "k" + nul + nul + bomb.substr(0, 20)), png_chunk("zTXt", "k" + nul),
        png_chunk("zTXt", "k" + nul + "\5" + bomb), png_chunk("tEXt", "no end"),
        png_chunk("iTXt", "k" + nul + nul), png_chunk("iTXt", "k" + nul + "\2" + nul + nul + nul),
        png_chunk("iTXt", "k" + nul + nul + nul + "language"), many}) {
    const std::string bytes = with_png_chunk(good, chunk);
    EXPECT_EQ(error_code("bomb", [&] { decode_image_info(bytes, "bomb"); }), "image_damaged");
    EXPECT_EQ(decode_image(bytes, "bomb").rgb, smooth(9, 9).rgb);
  }
}

TEST(Png, TextChunkKindFollowsTheCharacters) {
  const auto kind = [](const char* value) {
    const std::string bytes = encode_image(smooth(4, 4), ImageFormat::kPng, {{"k", value}});
    return bytes.substr(8 + 25 + 4, 4);
  };
  EXPECT_EQ(kind("caf\xC3\xA9\n"), "tEXt");
  EXPECT_EQ(kind("\xE2\x82\xAC"), "iTXt");
  EXPECT_EQ(kind("a\rb"), "iTXt");
}

}  // namespace
}  // namespace mere
