// Which levels of a decoder run over the picture as a whole and which in tiles, so that a limit of
// memory is kept.
//
// A decoder is a chain of levels, each with twice the side of the one before. The first ones see
// the whole picture at a fraction of its pixels; the last ones take most of the memory. A level in
// tiles keeps only what it reads and what it gives for the whole picture (strips.h).
#pragma once

#include <cstdint>
#include <vector>

namespace mere {

struct DecoderShape {
  int64_t height = 0, width = 0;  // of the first level, pixels
  std::vector<int64_t> channels;  // of each level
  bool attention = false;         // before the first level
};

struct DecodePlan {
  // Rows of a tile, as wide as the picture, of each of the last levels in order; even. A level that
  // fits has one tile. Empty: the picture as a whole.
  std::vector<int64_t> tile_rows;
  int64_t bytes = 0;  // of activations at the widest place
};

// The plan with the fewest tiles that takes at most `limit_bytes`; when none does, the one that
// takes least.
DecodePlan plan_decode(const DecoderShape& shape, int64_t limit_bytes);

}  // namespace mere
