// Weight matrices as they lie in a file: any element type, any address.
#pragma once

#include <cstdint>

namespace mere::cpu {

enum class Stored { kFloat32, kFloat16, kBFloat16 };

constexpr int64_t stored_size(Stored type) { return type == Stored::kFloat32 ? 4 : 2; }

// A floating matrix of equally spaced rows; `stride` in elements.
struct StoredMatrix {
  Stored type;
  const void* data;
  int64_t stride;

  const void* at(int64_t row, int64_t column) const {
    return static_cast<const char*>(data) + (row * stride + column) * stored_size(type);
  }
};

// Columns that share a scale in any format.
constexpr int64_t kLeastGroup = 32;
constexpr int64_t kMostGroup = 128;

// MLX affine quantisation: value = code * scale + bias, codes packed from the low bit up.
struct AffineMatrix {
  int bits;           // 1 to 6, or 8
  int64_t group;      // columns that share a scale: 32, 64 or 128
  const void* codes;  // [rows, columns * bits / 32] uint32, `stride` words from row to row
  int64_t stride;
  StoredMatrix scales, biases;  // [rows, columns / group]
};

// One row of an MLX affine matrix: `columns` codes of `bits` bits, packed little-endian from the
// low bit up, to code * scale + bias with one scale and bias per `group_size` columns.
void affine_to_f32(const uint32_t* codes, int bits, const float* scales, const float* biases,
                   int64_t group_size, int64_t columns, float* out);

// Columns [first, first + count) of one row, both multiples of the group.
void affine_row_to_f32(const AffineMatrix& w, int64_t row, int64_t first, int64_t count,
                       float* out);

// The same as integers: value = out * scale + offset, where out = code - 2^(bits - 1) (1 bit: code)
// keeps the integers small, and the offset makes up for it.
void affine_row_to_i16(const AffineMatrix& w, int64_t row, int64_t first, int64_t count,
                       int16_t* out, float* scales);
// The offsets of `count` groups from group `first` on.
void affine_row_offsets(const AffineMatrix& w, int64_t row, int64_t first, int64_t count,
                        float* out);

}  // namespace mere::cpu
