#include "kernels/cpu/winograd.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/gemm.h"

#ifndef MERE_KERNELS_CPU_WINOGRAD_SHARED  // this file is read once per target
#define MERE_KERNELS_CPU_WINOGRAD_SHARED
namespace mere::cpu {
namespace {

constexpr int kOut = 4;  // side of a tile of outputs
constexpr int kIn = 6;   // side of the inputs it needs
constexpr int kFrequencies = kIn * kIn;
constexpr int64_t kDepth = 64;    // input channels side by side
constexpr int64_t kColumns = 64;  // output channels at a time
constexpr int64_t kSpread = 16;   // floats between frequencies: without, powers of two
                                  // would put all of them into one set of the cache

// The interpolation points besides 0 and infinity, and their squares.
constexpr double kA = 0.625, kB = 1.5;
constexpr double kA2 = kA * kA, kB2 = kB * kB;

struct Plan {
  const ConvShape& shape;
  const WinogradInput& input;
  const WinogradWeight& weight;
  const float* bias;
  const float* residual;
  float* dst;
  float* weights;  // transformed: [block of columns][frequency][panel][Cin][lane]
  int64_t tiles_high = 0, tiles_wide = 0;    // of the output
  int64_t block_high = 0, block_wide = 0;    // most tiles of a block
  int64_t blocks_high = 0, blocks_wide = 0;  // of one picture
};

// Some tiles of one picture.
struct Block {
  int64_t batch, tile_y, tile_x, high, wide;
  int64_t tiles() const { return high * wide; }
};

// Memory of one thread.
struct Scratch {
  float* patch;     // [row][column][kDepth]
  float* input;     // [frequency][depth block][tile][kDepth]
  float* products;  // [frequency][tile][columns]
};

}  // namespace
}  // namespace mere::cpu
#endif  // MERE_KERNELS_CPU_WINOGRAD_SHARED

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/winograd.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>
//
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mere::cpu::HWY_NAMESPACE {
namespace {

using V = hn::Vec<Wide>;

int64_t BlockColumns() { return std::max(kColumns, TileColumns()); }

// Floats from one frequency to the next.
int64_t InputStride(int64_t tiles, int64_t channels) {
  return round_up(tiles, kTileRows) * round_up(channels, kDepth) + kSpread;
}
int64_t ProductStride(int64_t tiles) {
  return round_up(tiles, kTileRows) * BlockColumns() + kSpread;
}

void Sizes(int64_t* rows, int64_t* width, int64_t* columns) {
  *rows = kTileRows;
  *width = TileColumns();
  *columns = BlockColumns();
}

void ScratchSizes(int64_t tiles, int64_t channels, int64_t* input, int64_t* products) {
  *input = kFrequencies * InputStride(tiles, channels);
  *products = kFrequencies * ProductStride(tiles);
}

// --- weights ---

// u = G g for one axis, in double: weights are transformed once and used for every tile.
template <class D, class W = hn::Vec<D>>
HWY_INLINE void TransformWeight(D d, W g0, W g1, W g2, W* u) {
  constexpr double kNormA = 1 / (2 * kA2 * (kA2 - kB2));
  constexpr double kNormB = 1 / (2 * kB2 * (kB2 - kA2));
  u[0] = hn::Mul(g0, hn::Set(d, 1 / (kA2 * kB2)));
  const W even_a = hn::Mul(hn::MulAdd(hn::Set(d, kA2), g2, g0), hn::Set(d, kNormA));
  const W odd_a = hn::Mul(g1, hn::Set(d, kA * kNormA));
  u[1] = hn::Add(even_a, odd_a);
  u[2] = hn::Sub(even_a, odd_a);
  const W even_b = hn::Mul(hn::MulAdd(hn::Set(d, kB2), g2, g0), hn::Set(d, kNormB));
  const W odd_b = hn::Mul(g1, hn::Set(d, kB * kNormB));
  u[3] = hn::Add(even_b, odd_b);
  u[4] = hn::Sub(even_b, odd_b);
  u[5] = g2;
}

// taps [9][width] of one input channel -> 36 rows of panels, `stride` floats apart.
void TransformTaps(const float* taps, int64_t width, float* out, int64_t stride) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  using W = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t lane = 0; lane < width; lane += lanes) {
    W half[3][kIn];  // transformed along the height
    for (int x = 0; x < 3; ++x) {
      const auto tap = [&](int y) HWY_ATTR {
        return hn::PromoteTo(d, hn::LoadU(narrow, taps + (y * 3 + x) * width + lane));
      };
      TransformWeight(d, tap(0), tap(1), tap(2), half[x]);
    }
    for (int y = 0; y < kIn; ++y) {
      W u[kIn];
      TransformWeight(d, half[0][y], half[1][y], half[2][y], u);
      for (int x = 0; x < kIn; ++x) {
        hn::StoreU(hn::DemoteTo(narrow, u[x]), narrow, out + (y * kIn + x) * stride + lane);
      }
    }
  }
}

// --- input ---

// Pixels [y, y + rows) x [x, x + columns) of the picture, channels [channel, channel + count), to
// patch [row][column][kDepth]. Missing channels up to whole vectors are zeros.
void GatherPatch(const Plan& plan, int64_t batch, int64_t y, int64_t x, int64_t rows,
                 int64_t columns, int64_t channel, int64_t count, float* patch) {
  const WinogradInput& in = plan.input;
  const ConvShape& s = plan.shape;
  const int shift = in.upsample ? 1 : 0;
  const int64_t width = s.in_width >> shift;
  const float* picture = in.x + batch * (s.in_height >> shift) * width * s.in_channels + channel;
  const float* scale = in.scale ? in.scale + batch * s.in_channels + channel : nullptr;
  const float* offset = in.scale ? in.shift + batch * s.in_channels + channel : nullptr;
  const auto copied = static_cast<size_t>(count) * sizeof(float);
  const auto slots = static_cast<size_t>(kDepth) * sizeof(float);
  for (int64_t row = y; row < y + rows; ++row) {
    for (int64_t column = x; column < x + columns; ++column, patch += kDepth) {
      if (row < 0 || row >= s.in_height || column < 0 || column >= s.in_width) {
        std::memset(patch, 0, slots);
        continue;
      }
      const float* from = picture + ((row >> shift) * width + (column >> shift)) * s.in_channels;
      if (count < kDepth) std::memset(patch + count, 0, slots - copied);
      if (scale == nullptr) {
        std::memcpy(patch, from, copied);
        continue;
      }
      ForEachVector(count, [&](int64_t c, auto d) HWY_ATTR {
        const auto v =
            hn::MulAdd(hn::LoadU(d, from + c), hn::LoadU(d, scale + c), hn::LoadU(d, offset + c));
        hn::StoreU(Silu(d, v), d, patch + c);
      });
    }
  }
}

// v = B^T d for one axis.
HWY_INLINE void TransformInput(V d0, V d1, V d2, V d3, V d4, V d5, V* v) {
  const Wide d;
  const V a2 = hn::Set(d, static_cast<float>(kA2));
  const V b2 = hn::Set(d, static_cast<float>(kB2));
  const V a2b2 = hn::Set(d, static_cast<float>(kA2 * kB2));
  const V sum = hn::Set(d, static_cast<float>(kA2 + kB2));
  v[0] = hn::MulAdd(a2b2, d0, hn::NegMulAdd(sum, d2, d4));
  const V even_a = hn::NegMulAdd(b2, d2, d4);
  const V odd_a = hn::Mul(hn::Set(d, static_cast<float>(kA)), hn::NegMulAdd(b2, d1, d3));
  v[1] = hn::Add(even_a, odd_a);
  v[2] = hn::Sub(even_a, odd_a);
  const V even_b = hn::NegMulAdd(a2, d2, d4);
  const V odd_b = hn::Mul(hn::Set(d, static_cast<float>(kB)), hn::NegMulAdd(a2, d1, d3));
  v[3] = hn::Add(even_b, odd_b);
  v[4] = hn::Sub(even_b, odd_b);
  v[5] = hn::MulAdd(a2b2, d1, hn::NegMulAdd(sum, d3, d5));
}

// One tile: from [6][6][kDepth] inside a patch to rows of the 36 frequencies.
void TransformInputTile(const float* from, int64_t row_stride, int64_t count, float* to,
                        int64_t stride) {
  const Wide d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < count; c += lanes) {
    V half[kIn][kIn];  // transformed along the width
    for (int y = 0; y < kIn; ++y) {
      const float* row = from + y * row_stride + c;
      const auto at = [&](int x) HWY_ATTR { return hn::LoadU(d, row + x * kDepth); };
      TransformInput(at(0), at(1), at(2), at(3), at(4), at(5), half[y]);
    }
    for (int x = 0; x < kIn; ++x) {
      V v[kIn];
      TransformInput(half[0][x], half[1][x], half[2][x], half[3][x], half[4][x], half[5][x], v);
      for (int y = 0; y < kIn; ++y) hn::StoreU(v[y], d, to + (y * kIn + x) * stride + c);
    }
  }
}

void TransformInputBlock(const Plan& plan, const Block& block, const Scratch& scratch) {
  const ConvShape& s = plan.shape;
  const int64_t rows = block.high * kOut + kIn - kOut;
  const int64_t columns = block.wide * kOut + kIn - kOut;
  const int64_t padded = round_up(block.tiles(), kTileRows);
  const int64_t stride = InputStride(block.tiles(), s.in_channels);
  for (int64_t channel = 0; channel < s.in_channels; channel += kDepth) {
    const int64_t count = std::min(kDepth, s.in_channels - channel);
    GatherPatch(plan, block.batch, block.tile_y * kOut - s.pad_top,
                block.tile_x * kOut - s.pad_left, rows, columns, channel, count, scratch.patch);
    float* to = scratch.input + channel * padded;
    for (int64_t y = 0; y < block.high; ++y) {
      for (int64_t x = 0; x < block.wide; ++x, to += kDepth) {
        TransformInputTile(scratch.patch + (y * columns + x) * kOut * kDepth, columns * kDepth,
                           count, to, stride);
      }
    }
    // Rows of the last, incomplete tile of the product.
    const auto missing = static_cast<size_t>((padded - block.tiles()) * kDepth) * sizeof(float);
    for (int f = 0; f < kFrequencies && missing > 0; ++f) std::memset(to + f * stride, 0, missing);
  }
}

// --- products ---

// c[kTileRows, two vectors] = a b. Unlike the tile of gemm.cpp it reads a by rows: blocks of kDepth
// values, `a_block` floats apart, which needs no packing. `ahead` is fetched into the second-level
// cache meanwhile, `ahead_lines` lines for a block.
HWY_INLINE void Tile(const float* HWY_RESTRICT a, int64_t a_block, const float* HWY_RESTRICT b,
                     int64_t k, float* HWY_RESTRICT c, int64_t ldc, const float* ahead,
                     int64_t ahead_lines) {
  const Wide d;
  const size_t lanes = hn::Lanes(d);
  V sum[kTileRows][2];
  HWY_UNROLL(16)
  for (int i = 0; i < kTileRows; ++i) {
    sum[i][0] = hn::Zero(d);
    sum[i][1] = hn::Zero(d);
  }
  for (; k > 0; k -= kDepth, a += a_block) {
    const int64_t count = std::min(k, kDepth);
    for (int64_t line = 0; line < ahead_lines; ++line, ahead += 16) {
      __builtin_prefetch(ahead, 0, 2);
    }
    for (int64_t p = 0; p < count; ++p, b += 2 * lanes) {
      const V b0 = hn::LoadU(d, b);
      const V b1 = hn::LoadU(d, b + lanes);
      HWY_UNROLL(16)
      for (int i = 0; i < kTileRows; ++i) {
        const V s = hn::Set(d, a[i * kDepth + p]);
        sum[i][0] = hn::MulAdd(s, b0, sum[i][0]);
        sum[i][1] = hn::MulAdd(s, b1, sum[i][1]);
      }
    }
  }
  HWY_UNROLL(16)
  for (int i = 0; i < kTileRows; ++i) {
    hn::StoreU(sum[i][0], d, c + i * ldc);
    hn::StoreU(sum[i][1], d, c + i * ldc + lanes);
  }
}

// All frequencies of a block of tiles for columns [column, column + count).
void Multiply(const Plan& plan, int64_t tiles, int64_t column, int64_t count,
              const Scratch& scratch) {
  const int64_t k = plan.shape.in_channels;
  const int64_t width = TileColumns();
  const int64_t panel = k * width;
  const int64_t padded = round_up(tiles, kTileRows);
  const int64_t depth_blocks = round_up(k, kDepth) / kDepth;
  // The panels lie in the order of use, so the next one follows.
  const int64_t groups = padded / kTileRows;
  const int64_t lines = (panel / 16 + groups * depth_blocks - 1) / (groups * depth_blocks);
  const float* b = plan.weights + column * k * kFrequencies;
  for (int f = 0; f < kFrequencies; ++f) {
    const float* a = scratch.input + f * InputStride(tiles, k);
    float* c = scratch.products + f * ProductStride(tiles);
    for (int64_t j = 0; j < count; j += width, b += panel) {
      for (int64_t i = 0; i < padded; i += kTileRows) {
        const float* ahead = b + panel + i / kTileRows * depth_blocks * lines * 16;
        Tile(a + i * kDepth, padded * kDepth, b, k, c + i * BlockColumns() + j, BlockColumns(),
             ahead, lines);
      }
    }
  }
}

// --- output ---

// y = A^T m for one axis.
HWY_INLINE void TransformOutput(V m0, V m1, V m2, V m3, V m4, V m5, V* y) {
  const Wide d;
  const V sum_a = hn::Add(m1, m2);
  const V odd_a = hn::Sub(m1, m2);
  const V sum_b = hn::Add(m3, m4);
  const V odd_b = hn::Sub(m3, m4);
  const auto set = [&](double v) HWY_ATTR { return hn::Set(d, static_cast<float>(v)); };
  y[0] = hn::Add(m0, hn::Add(sum_a, sum_b));
  y[1] = hn::MulAdd(set(kA), odd_a, hn::Mul(set(kB), odd_b));
  y[2] = hn::MulAdd(set(kA2), sum_a, hn::Mul(set(kB2), sum_b));
  y[3] = hn::MulAdd(set(kA2 * kA), odd_a, hn::MulAdd(set(kB2 * kB), odd_b, m5));
}

// One tile of `count` columns. Pixels [0, rows) x [0, columns) of it are inside the picture.
void TransformOutputTile(const float* from, int64_t stride, int64_t count, const float* bias,
                         const float* residual, float* to, int64_t rows, int64_t columns,
                         int64_t row_stride, int64_t pixel_stride) {
  const Wide d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float tail[hn::MaxLanes(Wide())];
  for (int64_t c = 0; c < count; c += lanes) {
    V half[kIn][kOut];  // transformed along the width
    for (int y = 0; y < kIn; ++y) {
      const auto at = [&](int x)
                          HWY_ATTR { return hn::LoadU(d, from + (y * kIn + x) * stride + c); };
      TransformOutput(at(0), at(1), at(2), at(3), at(4), at(5), half[y]);
    }
    V pixels[kOut][kOut];  // [x][y]
    for (int x = 0; x < kOut; ++x) {
      TransformOutput(half[0][x], half[1][x], half[2][x], half[3][x], half[4][x], half[5][x],
                      pixels[x]);
    }
    const int64_t valid = std::min(lanes, count - c);
    for (int64_t y = 0; y < rows; ++y) {
      for (int64_t x = 0; x < columns; ++x) {
        const int64_t at = y * row_stride + x * pixel_stride + c;
        V v = pixels[x][y];
        if (valid == lanes) {
          if (bias != nullptr) v = hn::Add(v, hn::LoadU(d, bias + c));
          if (residual != nullptr) v = hn::Add(v, hn::LoadU(d, residual + at));
          hn::StoreU(v, d, to + at);
          continue;
        }
        hn::Store(v, d, tail);
        for (int64_t i = 0; i < valid; ++i) {
          float value = tail[i];
          if (bias != nullptr) value += bias[c + i];
          if (residual != nullptr) value += residual[at + i];
          to[at + i] = value;
        }
      }
    }
  }
}

void TransformOutputBlock(const Plan& plan, const Block& block, int64_t column, int64_t count,
                          const Scratch& scratch) {
  const ConvShape& s = plan.shape;
  const float* from = scratch.products;
  const int64_t row_stride = s.out_width * s.out_channels;
  for (int64_t y = 0; y < block.high; ++y) {
    for (int64_t x = 0; x < block.wide; ++x, from += BlockColumns()) {
      const int64_t row = (block.tile_y + y) * kOut;
      const int64_t at_x = (block.tile_x + x) * kOut;
      const int64_t at =
          ((block.batch * s.out_height + row) * s.out_width + at_x) * s.out_channels + column;
      TransformOutputTile(from, ProductStride(block.tiles()), count,
                          plan.bias ? plan.bias + column : nullptr,
                          plan.residual ? plan.residual + at : nullptr, plan.dst + at,
                          std::min<int64_t>(kOut, s.out_height - row),
                          std::min<int64_t>(kOut, s.out_width - at_x), row_stride, s.out_channels);
    }
  }
}

void RunBlock(const Plan& plan, const Block& block, const Scratch& scratch) {
  TransformInputBlock(plan, block, scratch);
  for (int64_t column = 0; column < plan.shape.out_channels; column += BlockColumns()) {
    const int64_t count = std::min(BlockColumns(), plan.shape.out_channels - column);
    Multiply(plan, block.tiles(), column, count, scratch);
    TransformOutputBlock(plan, block, column, count, scratch);
  }
}

}  // namespace
}  // namespace mere::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <hwy/aligned_allocator.h>
#include <new>
#include <omp.h>
#include <sys/mman.h>

#include "kernels/cpu/parallel.h"

namespace mere::cpu {
namespace {

HWY_EXPORT(Sizes);
HWY_EXPORT(ScratchSizes);
HWY_EXPORT(TransformTaps);
HWY_EXPORT(RunBlock);

struct TileSizes {
  int64_t rows, width, columns;
};

TileSizes tile_sizes() {
  configure();
  TileSizes sizes{};
  HWY_DYNAMIC_DISPATCH(Sizes)(&sizes.rows, &sizes.width, &sizes.columns);
  return sizes;
}

int64_t parts(int64_t value, int64_t size) { return (value + size - 1) / size; }

void to_floats(Stored type, const void* from, int64_t count, float* out) {
  const auto size = static_cast<size_t>(count);
  switch (type) {
    case Stored::kFloat32:
      std::memcpy(out, from, size * sizeof(float));
      return;
    case Stored::kFloat16:
      return f16_to_f32(static_cast<const uint16_t*>(from), out, size);
    case Stored::kBFloat16:
      return bf16_to_f32(static_cast<const uint16_t*>(from), out, size);
  }
}

// Transforms the weights of one panel of output channels into the workspace.
void transform_weights(const Plan& plan, const TileSizes& sizes, int64_t panel) {
  const int64_t k = plan.shape.in_channels;
  const int64_t* strides = plan.weight.strides;
  const int64_t first = panel * sizes.width;
  const int64_t rows = std::min(sizes.width, plan.shape.out_channels - first);
  const int64_t bytes = plan.weight.type == Stored::kFloat32 ? 4 : 2;
  static thread_local std::vector<float> wide;
  wide.resize(static_cast<size_t>(rows * 9 * k));
  for (int64_t row = 0; row < rows; ++row) {
    to_floats(plan.weight.type,
              static_cast<const std::byte*>(plan.weight.data) + (first + row) * strides[0] * bytes,
              9 * k, wide.data() + row * 9 * k);
  }
  // Panels of a block of columns are neighbours within each frequency.
  const int64_t block = first / sizes.columns;
  const int64_t columns = std::min(sizes.columns, plan.shape.out_channels - block * sizes.columns);
  const int64_t panels_in_block = parts(columns, sizes.width);
  float* to =
      plan.weights + block * sizes.columns * k * kFrequencies + (first - block * sizes.columns) * k;
  const int64_t stride = panels_in_block * k * sizes.width;
  std::vector<float> taps(static_cast<size_t>(9 * sizes.width), 0.0F);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t tap = 0; tap < 9; ++tap) {
      const float* from =
          wide.data() + i * strides[3] + tap / 3 * strides[1] + tap % 3 * strides[2];
      float* lanes = taps.data() + tap * sizes.width;
      for (int64_t row = 0; row < rows; ++row) lanes[row] = from[row * 9 * k];
    }
    HWY_DYNAMIC_DISPATCH(TransformTaps)(taps.data(), sizes.width, to + i * sizes.width, stride);
  }
}

constexpr int64_t kBlockWide = 8;
constexpr int64_t kBlockTiles = 48;  // their products for some columns stay near the second cache

// Cuts the pictures into blocks that fill the tiles of the product, enough of them for every
// thread.
void cut(Plan& plan, int64_t tile_rows) {
  const ConvShape& s = plan.shape;
  plan.tiles_high = parts(s.out_height, kOut);
  plan.tiles_wide = parts(s.out_width, kOut);
  const int64_t all = s.batch * plan.tiles_high * plan.tiles_wide;
  const int64_t share = parts(all, 2 * int64_t{omp_get_max_threads()});
  const int64_t most = std::min(parts(kBlockTiles, tile_rows) * tile_rows, share);
  plan.block_wide = std::min(plan.tiles_wide, kBlockWide);
  plan.block_high = std::clamp<int64_t>(most / plan.block_wide, 1, plan.tiles_high);
  plan.blocks_wide = parts(plan.tiles_wide, plan.block_wide);
  plan.blocks_high = parts(plan.tiles_high, plan.block_high);
}

Block block_at(const Plan& plan, int64_t index) {
  Block block{};
  block.tile_x = index % plan.blocks_wide * plan.block_wide;
  index /= plan.blocks_wide;
  block.tile_y = index % plan.blocks_high * plan.block_high;
  block.batch = index / plan.blocks_high;
  block.wide = std::min(plan.block_wide, plan.tiles_wide - block.tile_x);
  block.high = std::min(plan.block_high, plan.tiles_high - block.tile_y);
  return block;
}

using Floats = hwy::AlignedFreeUniquePtr<float[]>;

// In huge pages: touching the weights of a small convolution page by page takes longer than
// transforming them.
Floats allocate(int64_t count) {
  const auto bytes = static_cast<size_t>(count) * sizeof(float);
  Floats memory = hwy::AllocateAligned<float>(static_cast<size_t>(count));
  if (!memory) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const auto first = (reinterpret_cast<uintptr_t>(memory.get()) + kHugePage - 1) & -kHugePage;
  const auto last = (reinterpret_cast<uintptr_t>(memory.get()) + bytes) & -kHugePage;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
  return memory;
}

// Kept between calls: fresh pages would cost a tenth of a small convolution.
class ScratchMemory {
 public:
  Scratch get(const Plan& plan) {
    const int64_t tiles = plan.block_high * plan.block_wide;
    int64_t input = 0;
    int64_t products = 0;
    HWY_DYNAMIC_DISPATCH(ScratchSizes)(tiles, plan.shape.in_channels, &input, &products);
    const int64_t patch = (plan.block_high * kOut + 2) * (plan.block_wide * kOut + 2) * kDepth;
    const int64_t total = patch + input + products;
    if (total > size_) {
      memory_.reset();
      memory_ = allocate(total);
      size_ = total;
    }
    return {memory_.get(), memory_.get() + patch, memory_.get() + patch + input};
  }

 private:
  Floats memory_;
  int64_t size_ = 0;
};

}  // namespace

void winograd_conv2d(const ConvShape& shape, const WinogradInput& input,
                     const WinogradWeight& weight, const float* bias, const float* residual,
                     float* dst) {
  const TileSizes sizes = tile_sizes();
  const int64_t out_lanes = parts(shape.out_channels, sizes.width) * sizes.width;
  const Floats weights = allocate(kFrequencies * shape.in_channels * out_lanes);
  Plan plan{shape, input, weight, bias, residual, dst, weights.get()};
  cut(plan, sizes.rows);
  parallel_tasks(parts(shape.out_channels, sizes.width), 1,
                 [&](int64_t panel) { transform_weights(plan, sizes, panel); });
  parallel_tasks(shape.batch * plan.blocks_high * plan.blocks_wide, 1, [&](int64_t index) {
    static thread_local ScratchMemory memory;
    HWY_DYNAMIC_DISPATCH(RunBlock)(plan, block_at(plan, index), memory.get(plan));
  });
}

}  // namespace mere::cpu
#endif  // HWY_ONCE
