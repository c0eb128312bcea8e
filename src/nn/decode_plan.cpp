#include "nn/decode_plan.h"

#include <algorithm>

namespace mere {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kLeastRows = 32;  // of a tile: with fewer, halos and repeated set-up tell
constexpr int64_t kHaloRows = 8;    // above and below, together

int64_t height_of(const DecoderShape& shape, size_t level) { return shape.height << level; }
int64_t width_of(const DecoderShape& shape, size_t level) { return shape.width << level; }

// Bytes of `channels` floats per pixel.
int64_t picture_bytes(const DecoderShape& shape, size_t level, int64_t channels) {
  return height_of(shape, level) * width_of(shape, level) * channels * kFloat;
}

// Floats per pixel at the widest place of a level. A resnet holds its input, its middle and its
// output or shortcut, or what a convolution reads in bfloat16 beside its input and output; the
// first one's input has the channels of the level before.
int64_t widest(const DecoderShape& shape, size_t level) {
  const int64_t own = shape.channels[level];
  if (level == 0) return own * (shape.attention ? 6 : 4);
  return 2 * own + std::max(own + own / 2, shape.channels[level - 1]);
}

// The most that one of the first `levels` levels takes when they run whole.
int64_t whole_bytes(const DecoderShape& shape, size_t levels) {
  int64_t most = 0;
  for (size_t level = 0; level < levels; ++level) {
    most = std::max(most, picture_bytes(shape, level, widest(shape, level)));
  }
  return most;
}

struct TiledLevel {
  int64_t rows = 0;
  int64_t bytes = 0;
};

TiledLevel tile(const DecoderShape& shape, size_t level, int64_t limit_bytes) {
  const int64_t height = height_of(shape, level);
  const int64_t whole = picture_bytes(shape, level, widest(shape, level));
  if (whole <= limit_bytes) return {height, whole};
  const int64_t own = shape.channels[level];
  const int64_t before = shape.channels[level - 1];
  const int64_t kept = picture_bytes(shape, level - 1, before) + picture_bytes(shape, level, own);
  // Beside the resnet's memory: a copy of the rows that are read, and the result of the tile before
  // (strips.h).
  const int64_t row = width_of(shape, level) * (widest(shape, level) + own + before / 4) * kFloat;
  // Even, so that rounding the rows to an even number does not pass it.
  const int64_t most = std::max((limit_bytes - kept) / row - kHaloRows, kLeastRows) / 2 * 2;
  const int64_t count = (height + most - 1) / most;
  const int64_t rows = (height / 2 + count - 1) / count * 2;
  return {rows, kept + row * (std::min(rows, height) + kHaloRows)};
}

}  // namespace

DecodePlan plan_decode(const DecoderShape& shape, int64_t limit_bytes) {
  const size_t levels = shape.channels.size();
  DecodePlan best{{}, whole_bytes(shape, levels)};
  for (size_t whole = levels - 1; whole > 0 && best.bytes > limit_bytes; --whole) {
    DecodePlan plan{{}, whole_bytes(shape, whole)};
    for (size_t level = whole; level < levels; ++level) {
      const TiledLevel tiled = tile(shape, level, limit_bytes);
      plan.tile_rows.push_back(tiled.rows);
      plan.bytes = std::max(plan.bytes, tiled.bytes);
    }
    if (plan.bytes < best.bytes) best = std::move(plan);
  }
  return best;
}

}  // namespace mere
