// Test pictures and hand-made file parts.
#pragma once

#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "media/image.h"

namespace mere::test {

Image pattern(int64_t width, int64_t height);  // u8[y,x,c] = (x*7 + y*13 + c*29 + (x*y)%31) & 255
Image noise(int64_t width, int64_t height);   // high bytes of a 32-bit linear congruential sequence
Image hard(int64_t width, int64_t height);    // noise brought to 0 and 255
Image smooth(int64_t width, int64_t height);  // gradients that lossy formats keep well

// Largest difference of one channel; pictures must have equal sizes.
int largest_difference(const Image& a, const Image& b);

// `upright` as a writer that stores it under EXIF orientation `orientation` would store it. Written
// from the definition (which stored row and column the shown top and left sides are).
Image stored_for_orientation(const Image& upright, int orientation);

// A TIFF block whose IFD0 holds only an orientation.
std::string orientation_tiff(int orientation, bool big_endian);

std::string big_endian(uint32_t value, int size);
std::string little_endian(uint32_t value, int size);

std::string png_chunk(std::string_view type, std::string_view data);
extern const std::string_view kPngSignature;
// A PNG header of this size, truecolour, 8 bits.
std::string png_ihdr(uint32_t width, uint32_t height);
// `png` with `chunk` put behind its header.
std::string with_png_chunk(std::string_view png, std::string_view chunk);
std::string with_jpeg_segment(std::string_view jpeg, uint8_t marker, std::string_view data);
std::string riff_chunk(std::string_view type, std::string_view data);
std::string riff(std::string_view chunks);
// A plain WebP file put into the extended layout with an EXIF chunk.
std::string with_webp_exif(std::string_view webp, int64_t width, int64_t height,
                           std::string_view exif);

// The code of the Error that `action` throws, checked to be a one-line message naming `name`;
// "" when it throws nothing.
std::string error_code(const std::string& name, const std::function<void()>& action);

}  // namespace mere::test
