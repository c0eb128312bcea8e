#include "media/exif.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "media/bytes.h"
#include "media/text.h"

namespace mere::media {
namespace {

constexpr uint16_t kTagOrientation = 0x0112;
constexpr uint16_t kTagExifIfd = 0x8769;
constexpr uint16_t kTagExifVersion = 0x9000;
constexpr uint16_t kTagUserComment = 0x9286;
constexpr uint16_t kTypeShort = 3;
constexpr uint16_t kTypeLong = 4;
constexpr uint16_t kTypeUndefined = 7;
constexpr size_t kEntryBytes = 12;

constexpr std::string_view kAscii("ASCII\0\0\0", 8);
constexpr std::string_view kUnicode("UNICODE\0", 8);

struct Tiff {
  ByteView view;
  ByteOrder order;
};

std::optional<Tiff> open_tiff(std::string_view bytes) {
  if (bytes.starts_with(std::string_view("Exif\0\0", 6))) bytes.remove_prefix(6);
  for (const auto order : {ByteOrder::kLittle, ByteOrder::kBig}) {
    const ByteView view(bytes, order);
    const std::string_view mark = order == ByteOrder::kLittle ? "II" : "MM";
    if (bytes.starts_with(mark) && view.u16(2) == 42) return Tiff{view, order};
  }
  return std::nullopt;
}

// Offset of the entry of `tag` in the IFD at `ifd`.
std::optional<size_t> find_entry(const ByteView& view, size_t ifd, uint16_t tag, uint16_t type) {
  const size_t count = view.u16(ifd).value_or(0);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = ifd + 2 + i * kEntryBytes;
    const auto entry_tag = view.u16(entry);
    if (!entry_tag) return std::nullopt;
    if (*entry_tag == tag && view.u16(entry + 2) == type) return entry;
  }
  return std::nullopt;
}

void append_entry(std::string& out, uint16_t tag, uint16_t type, uint32_t count, uint32_t value) {
  append_le(out, tag, 2);
  append_le(out, type, 2);
  append_le(out, count, 4);
  append_le(out, value, 4);
}

}  // namespace

int exif_orientation(std::string_view bytes) {
  const auto tiff = open_tiff(bytes);
  if (!tiff) return 1;
  const auto ifd = tiff->view.u32(4);
  if (!ifd) return 1;
  const auto entry = find_entry(tiff->view, *ifd, kTagOrientation, kTypeShort);
  const int value = entry ? tiff->view.u16(*entry + 8).value_or(1) : 1;
  return value >= 1 && value <= 8 ? value : 1;
}

std::optional<std::string> exif_user_comment(std::string_view bytes) {
  const auto tiff = open_tiff(bytes);
  if (!tiff) return std::nullopt;
  const auto& view = tiff->view;
  const auto ifd = view.u32(4);
  if (!ifd) return std::nullopt;
  const auto pointer = find_entry(view, *ifd, kTagExifIfd, kTypeLong);
  const auto exif_ifd = pointer ? view.u32(*pointer + 8) : std::nullopt;
  if (!exif_ifd) return std::nullopt;
  const auto entry = find_entry(view, *exif_ifd, kTagUserComment, kTypeUndefined);
  if (!entry) return std::nullopt;
  const auto size = view.u32(*entry + 4);
  const auto offset = view.u32(*entry + 8);
  // Shorter than its character code: nothing to read. It never fits the four bytes of the entry.
  if (!size || !offset || *size < kAscii.size()) return std::nullopt;
  const auto value = view.slice(*offset, *size);
  if (!value) return std::nullopt;
  std::string_view comment = value->substr(kAscii.size());
  // Cameras fill the rest of a reserved field with NULs.
  if (value->starts_with(kUnicode)) {
    comment = comment.substr(0, comment.size() / 2 * 2);
    while (comment.ends_with(std::string_view("\0\0", 2))) comment.remove_suffix(2);
    return utf16_to_utf8(comment, tiff->order);
  }
  while (comment.ends_with('\0')) comment.remove_suffix(1);
  return utf8_or_latin1(comment);
}

std::string make_exif_user_comment(std::string_view comment) {
  const bool seven_bit = std::all_of(comment.begin(), comment.end(),
                                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  std::string value(seven_bit ? kAscii : kUnicode);
  value += seven_bit ? std::string(comment) : utf8_to_utf16le(comment);

  constexpr uint32_t kIfd0 = 8;
  constexpr uint32_t kExifIfd = kIfd0 + 2 + kEntryBytes + 4;
  constexpr uint32_t kValue = kExifIfd + 2 + 2 * kEntryBytes + 4;
  std::string out("II*\0", 4);
  append_le(out, kIfd0, 4);
  append_le(out, 1, 2);
  append_entry(out, kTagExifIfd, kTypeLong, 1, kExifIfd);
  append_le(out, 0, 4);  // no further IFD
  append_le(out, 2, 2);
  append_entry(out, kTagExifVersion, kTypeUndefined, 4, 0x32333230);  // "0232"
  append_entry(out, kTagUserComment, kTypeUndefined, static_cast<uint32_t>(value.size()), kValue);
  append_le(out, 0, 4);
  return out + value;
}

Image turn_upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool swap = swaps_sides(orientation);
  const int64_t w = image.width;
  const int64_t h = image.height;
  Image out(swap ? h : w, swap ? w : h);
  // Where the pixel shown at (x, y) lies in the file: mirrored along either stored side or not.
  const bool mirror_x =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirror_y =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x, to += 3) {
      int64_t sx = swap ? y : x;
      int64_t sy = swap ? x : y;
      if (mirror_x) sx = w - 1 - sx;
      if (mirror_y) sy = h - 1 - sy;
      const uint8_t* from = image.rgb.data() + (sy * w + sx) * 3;
      to[0] = from[0];
      to[1] = from[1];
      to[2] = from[2];
    }
  }
  return out;
}

}  // namespace mere::media
