#include "kernels/cpu/bf16_panels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/parallel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mere::cpu {
namespace {

constexpr int64_t kBlock = 16;                  // rows or columns of one block
constexpr int64_t kBlockBytes = 1024;           // 16 rows of 64 bytes
constexpr int64_t kStepBytes = kBf16StepBytes;  // of a panel for 32 values of k: two blocks

// Multiplies one A-panel with one B-panel into a full tile.
using TileFunction = void (*)(const std::byte* a, const std::byte* b, int64_t steps, float* c,
                              int64_t ldc, bool accumulate);

float bf16_value(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

void tile_plain(const std::byte* a, const std::byte* b, int64_t steps, float* c, int64_t ldc,
                bool accumulate) {
  for (int64_t i = 0; i < kBf16Lanes; ++i) {
    for (int64_t j = 0; j < kBf16Lanes; ++j) {
      float sum = accumulate ? c[i * ldc + j] : 0.0F;
      for (int64_t k = 0; k < steps * kBf16Lanes; ++k) {
        const int64_t step = k / kBf16Lanes * kStepBytes;
        const int64_t at = k % kBf16Lanes;
        sum += bf16_value(a + step + i / kBlock * kBlockBytes + i % kBlock * 64 + at * 2) *
               bf16_value(b + step + j / kBlock * kBlockBytes + at / 2 * 64 + j % kBlock * 4 +
                          at % 2 * 2);
      }
      c[i * ldc + j] = sum;
    }
  }
}

bool plain_tiles = false;

#if defined(__x86_64__)

// Shapes of the eight tile registers: 16 rows of 64 bytes each.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

__attribute__((target("amx-tile"))) void load_tile_config() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}

__attribute__((target("amx-tile"))) void release_tiles() { _tile_release(); }

__attribute__((target("amx-tile,amx-bf16"))) void tile_amx(const std::byte* a, const std::byte* b,
                                                           int64_t steps, float* c, int64_t ldc,
                                                           bool accumulate) {
  const int64_t stride = ldc * static_cast<int64_t>(sizeof(float));
  float* const lower = c + kBlock * ldc;
  if (accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + kBlock, stride);
    _tile_loadd(2, lower, stride);
    _tile_loadd(3, lower + kBlock, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < steps; ++step, a += kStepBytes, b += kStepBytes) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kBlockBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kBlockBytes, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + kBlock, stride);
  _tile_stored(2, lower, stride);
  _tile_stored(3, lower + kBlock, stride);
}

// Eight rows at a time: 16 accumulators.
__attribute__((target("avx512f,avx512bw,avx512bf16"))) void tile_avx512(
    const std::byte* a, const std::byte* b, int64_t steps, float* c, int64_t ldc, bool accumulate) {
  constexpr int kRows = 8;
  for (int64_t first = 0; first < kBf16Lanes; first += kRows, c += kRows * ldc) {
    __m512 sum[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      sum[r][0] = accumulate ? _mm512_loadu_ps(c + r * ldc) : _mm512_setzero_ps();
      sum[r][1] = accumulate ? _mm512_loadu_ps(c + r * ldc + kBlock) : _mm512_setzero_ps();
    }
    const std::byte* a_block = a + first / kBlock * kBlockBytes + first % kBlock * 64;
    const std::byte* b_block = b;
    for (int64_t step = 0; step < steps; ++step, a_block += kStepBytes, b_block += kStepBytes) {
      for (int64_t pair = 0; pair < kBlock; ++pair) {
        const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b_block + pair * 64));
        const auto b1 =
            reinterpret_cast<__m512bh>(_mm512_loadu_si512(b_block + kBlockBytes + pair * 64));
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int32_t value;
          std::memcpy(&value, a_block + r * 64 + pair * 4, sizeof value);
          const auto s = reinterpret_cast<__m512bh>(_mm512_set1_epi32(value));
          sum[r][0] = _mm512_dpbf16_ps(sum[r][0], s, b0);
          sum[r][1] = _mm512_dpbf16_ps(sum[r][1], s, b1);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(c + r * ldc, sum[r][0]);
      _mm512_storeu_ps(c + r * ldc + kBlock, sum[r][1]);
    }
  }
}

// The system grants the large register state of AMX on request.
bool may_use_amx() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  constexpr int kRequestPermission = 0x1023;
  constexpr int kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Intel's processors multiply bfloat16 vectors at half the rate of float32 ones; AMX is what they
// have it for.
bool has_slow_bf16_vectors() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0, &a, &b, &c, &d) != 0 && b == signature_INTEL_ebx;
}

struct Unit {
  TileFunction tile = nullptr;
  bool amx = false;
};

const Unit& unit() {
  static const Unit chosen = [] {
    if (!has_bf16_gemm()) return Unit{};
    if (amx_allowed() && may_use_amx()) return Unit{&tile_amx, true};
    return has_slow_bf16_vectors() ? Unit{} : Unit{&tile_avx512, false};
  }();
  return chosen;
}

// Tile registers belong to a thread and are set up for the time of a block.
class TileScope {
 public:
  TileScope() {
    if (uses_amx_) load_tile_config();
  }
  ~TileScope() {
    if (uses_amx_) release_tiles();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const bool uses_amx_ = unit().amx && !plain_tiles;
};

#else

struct Unit {
  TileFunction tile = nullptr;
};
const Unit& unit() {
  static const Unit none;
  return none;
}
struct TileScope {};

#endif

TileFunction tile_function() { return plain_tiles ? &tile_plain : unit().tile; }

// Blocks of B for up to 16 columns whose rows `narrow` gives as bfloat16 from k on.
template <class Narrow>
void pack_b_panels(int64_t columns, int64_t k, std::byte* out, const Narrow& narrow) {
  std::array<uint16_t, kBlock * kBf16Lanes> rows;
  for (int64_t first = 0; first < columns; first += kBf16Lanes) {
    for (int64_t p = 0; p < k; p += kBf16Lanes) {
      const int64_t depth = std::min(kBf16Lanes, k - p);
      for (int64_t block = 0; block < kBf16Lanes; block += kBlock, out += kBlockBytes) {
        const int64_t count = std::clamp<int64_t>(columns - first - block, 0, kBlock);
        if (count < kBlock || depth < kBf16Lanes) rows.fill(0);
        for (int64_t c = 0; c < count; ++c) {
          narrow(first + block + c, p, depth, rows.data() + c * kBf16Lanes);
        }
        // A pair moves as one 32-bit value.
        pack_rows(Stored::kFloat32, rows.data(), kBlock, kBlock, kBlock, kBlock,
                  reinterpret_cast<float*>(out));
      }
    }
  }
}

}  // namespace

bool has_bf16_panels() { return tile_function() != nullptr; }

void use_plain_bf16_tiles(bool use) { plain_tiles = use; }

std::byte* bf16_panel_row(std::byte* panels, int64_t row, int64_t k) {
  const int64_t lane = row % kBf16Lanes;
  return panels + row / kBf16Lanes * bf16_panel_bytes(k) + lane / kBlock * kBlockBytes +
         lane % kBlock * 64;
}

void pack_a_bf16(const float* from, int64_t stride, int64_t rows, int64_t k, std::byte* out) {
  const int64_t panel = bf16_panel_bytes(k);
  std::vector<uint16_t> row(static_cast<size_t>(panel / (kBf16Lanes * 2)));
  const auto steps = static_cast<int64_t>(row.size()) / kBf16Lanes;
  for (int64_t i = 0; i < (rows + kBf16Lanes - 1) / kBf16Lanes * kBf16Lanes; ++i) {
    if (i < rows) {
      f32_to_bf16(from + i * stride, row.data(), static_cast<size_t>(k));
    } else {
      std::ranges::fill(row, uint16_t{0});
    }
    std::byte* to = bf16_panel_row(out, i, k);
    for (int64_t step = 0; step < steps; ++step) {
      std::memcpy(to + step * kStepBytes, row.data() + step * kBf16Lanes, 64);
    }
  }
}

void pack_b_bf16(Stored type, const void* from, int64_t stride, int64_t columns, int64_t k,
                 std::byte* out) {
  const StoredMatrix matrix{type, from, stride};
  if (type == Stored::kBFloat16 && stride % 2 == 0 && columns % kBf16Lanes == 0 &&
      k % kBf16Lanes == 0) {
    // Pairs of k move as they are, from the weight into the block.
    for (int64_t first = 0; first < columns; first += kBf16Lanes) {
      for (int64_t p = 0; p < k; p += kBf16Lanes) {
        for (int64_t block = 0; block < kBf16Lanes; block += kBlock, out += kBlockBytes) {
          pack_rows(Stored::kFloat32, matrix.at(first + block, p), stride / 2, kBlock, kBlock,
                    kBlock, reinterpret_cast<float*>(out));
        }
      }
    }
    return;
  }
  pack_b_panels(columns, k, out, [&](int64_t column, int64_t at, int64_t count, uint16_t* to) {
    if (type == Stored::kBFloat16) {
      std::memcpy(to, matrix.at(column, at), static_cast<size_t>(count) * 2);
      return;
    }
    std::array<float, kBf16Lanes> wide;
    if (type == Stored::kFloat32) {
      std::memcpy(wide.data(), matrix.at(column, at), static_cast<size_t>(count) * 4);
    } else {
      std::array<uint16_t, kBf16Lanes> half;
      std::memcpy(half.data(), matrix.at(column, at), static_cast<size_t>(count) * 2);
      f16_to_f32(half.data(), wide.data(), static_cast<size_t>(count));
    }
    f32_to_bf16(wide.data(), to, static_cast<size_t>(count));
  });
}

void pack_b_columns_bf16(const float* from, int64_t stride, int64_t columns, int64_t k,
                         std::byte* out) {
  const int64_t panel = bf16_panel_bytes(k);
  const int64_t width = (columns + kBf16Lanes - 1) / kBf16Lanes * kBf16Lanes;
  std::vector<uint16_t> even(static_cast<size_t>(width));
  std::vector<uint16_t> odd(static_cast<size_t>(width));
  for (int64_t p = 0; p < panel / (kBf16Lanes * 2); p += 2) {
    const auto fill = [&](int64_t row, std::vector<uint16_t>& to) {
      if (row < k) {
        f32_to_bf16(from + row * stride, to.data(), static_cast<size_t>(columns));
      } else {
        std::ranges::fill(to, uint16_t{0});
      }
    };
    fill(p, even);
    fill(p + 1, odd);
    for (int64_t column = 0; column < width; column += kBlock) {
      std::byte* to = out + column / kBf16Lanes * panel + p / kBf16Lanes * kStepBytes +
                      column % kBf16Lanes / kBlock * kBlockBytes + p % kBf16Lanes / 2 * 64;
      std::array<uint32_t, kBlock> zipped;
      for (int64_t c = 0; c < kBlock; ++c) {
        zipped[c] = even[column + c] | uint32_t{odd[column + c]} << 16;
      }
      std::memcpy(to, zipped.data(), sizeof zipped);
    }
  }
}

void multiply_packed_bf16(const std::byte* a, const std::byte* b, int64_t b_panel_bytes, int64_t k,
                          int64_t rows, int64_t columns, float* c, int64_t ldc, bool accumulate) {
  const TileFunction tile = tile_function();
  if (tile == nullptr) throw std::logic_error("no bfloat16 products on this processor");
  const TileScope scope;
  const int64_t steps = (k + kBf16Lanes - 1) / kBf16Lanes;
  alignas(64) std::array<float, kBf16Lanes * kBf16Lanes> edge;
  for (int64_t j = 0; j < columns; j += kBf16Lanes, b += b_panel_bytes) {
    const std::byte* a_at = a;
    for (int64_t i = 0; i < rows; i += kBf16Lanes, a_at += bf16_panel_bytes(k)) {
      float* to = c + i * ldc + j;
      const int64_t height = std::min(kBf16Lanes, rows - i);
      const int64_t width = std::min(kBf16Lanes, columns - j);
      if (height == kBf16Lanes && width == kBf16Lanes) {
        tile(a_at, b, steps, to, ldc, accumulate);
        continue;
      }
      tile(a_at, b, steps, edge.data(), kBf16Lanes, false);
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t s = 0; s < width; ++s) {
          float& value = to[r * ldc + s];
          value = accumulate ? value + edge[r * kBf16Lanes + s] : edge[r * kBf16Lanes + s];
        }
      }
    }
  }
}

}  // namespace mere::cpu
