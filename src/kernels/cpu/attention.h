// Attention over tiles for one batch and head, with keys and values packed once for all queries.
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
  bool bf16;           // products in bfloat16 (bf16_panels.h), packed_k and packed_v too
  float* packed_k;  // attention_packed_size(keys, depth) values each; heads that share keys share
  float* packed_v;  // them
};

// Rows of queries, and of keys, handled together; callers split work in multiples of them.
inline constexpr int64_t kAttentionTileQueries = 96;  // whole panels of 6, 12 and 32 rows
inline constexpr int64_t kAttentionTileKeys = 256;

int64_t attention_packed_size(int64_t keys, int64_t depth);

// Fills one tile of packed_k and packed_v, keys from `first` on.
void attention_pack_tile(const AttentionHead& head, int64_t first);

// Queries [first, first + count), count <= kAttentionTileQueries. Needs every tile of keys packed.
void attention_tile(const AttentionHead& head, int64_t first, int64_t count);

}  // namespace mere::cpu
