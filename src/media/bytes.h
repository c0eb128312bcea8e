// Checked reads and little writers for the binary containers of this folder (PNG chunks, JPEG
// segments, RIFF, TIFF). Every offset and length read from a file passes through here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mere::media {

enum class ByteOrder { kLittle, kBig };

// Bytes of unknown origin, read in one byte order. nullopt whenever a read would leave the bytes.
class ByteView {
 public:
  ByteView(std::string_view bytes, ByteOrder order) : bytes_(bytes), order_(order) {}

  size_t size() const { return bytes_.size(); }
  std::optional<uint8_t> u8(size_t offset) const { return number<uint8_t>(offset, 1); }
  std::optional<uint16_t> u16(size_t offset) const { return number<uint16_t>(offset, 2); }
  std::optional<uint32_t> u24(size_t offset) const { return number<uint32_t>(offset, 3); }
  std::optional<uint32_t> u32(size_t offset) const { return number<uint32_t>(offset, 4); }
  std::optional<std::string_view> slice(size_t offset, size_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) return std::nullopt;
    return bytes_.substr(offset, size);
  }

 private:
  template <class T>
  std::optional<T> number(size_t offset, size_t size) const {
    const auto part = slice(offset, size);
    if (!part) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      const size_t shift = 8 * (order_ == ByteOrder::kLittle ? i : size - 1 - i);
      value |= static_cast<uint32_t>(static_cast<unsigned char>((*part)[i])) << shift;
    }
    return static_cast<T>(value);
  }

  std::string_view bytes_;
  ByteOrder order_;
};

// Appends the low `size` bytes of `value`.
inline void append_le(std::string& out, uint32_t value, int size) {
  for (int i = 0; i < size; ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
}

}  // namespace mere::media
