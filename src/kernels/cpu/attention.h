// Attention over tiles for one batch and head.
#pragma once

#include <cstdint>

namespace mere::cpu {

struct AttentionHead {
  const float* q;  // row i at q + i * q_stride, D values
  const float* k;
  const float* v;
  float* out;                                        // row i at out + i * out_stride
  int64_t q_stride, k_stride, v_stride, out_stride;  // elements
  int64_t queries, keys, depth;
  float scale;
  bool causal;
  int64_t valid_keys;  // keys at and after this are not seen
};

// Rows of queries handled together; callers split work in multiples of it.
inline constexpr int64_t kAttentionTileQueries = 64;

// Queries [first, first + count), count <= kAttentionTileQueries.
void attention_tile(const AttentionHead& head, int64_t first, int64_t count);

}  // namespace mere::cpu
