// The two EXIF fields we use: orientation (read) and user comment (read and written).
//
// A TIFF block is the part that starts with "II*\0" or "MM\0*"; a leading "Exif\0\0" is skipped.
// Damaged EXIF never fails a picture: what cannot be read counts as absent. Offsets are followed
// two levels deep at most (IFD0, then its Exif IFD), so loops cannot occur.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "media/image.h"

namespace mere::media {

// Orientation 1..8 of IFD0; 1 when absent or not one of these.
int exif_orientation(std::string_view tiff);

// UserComment as UTF-8.
std::optional<std::string> exif_user_comment(std::string_view tiff);

// A little-endian TIFF block that holds only `comment` (UTF-8).
std::string make_exif_user_comment(std::string_view comment);

// Does orientation `orientation` swap width and height?
inline bool swaps_sides(int orientation) { return orientation >= 5; }

// `image` as it is meant to be seen: 2 mirrored, 3 half turn, 4 upside down, 5 transposed,
// 6 quarter turn clockwise, 7 transversed, 8 quarter turn counter-clockwise.
Image turn_upright(Image image, int orientation);

}  // namespace mere::media
