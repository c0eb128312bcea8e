#include "kernels/attention.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

void require_dense_depth(const mx::array& a) {
  if (a.shape(3) > 1 && a.strides(3) != 1) {
    throw std::invalid_argument("[attention] needs a dense last axis");
  }
}

// out is [B, Lq, H, D], dense.
void run_attention(const std::vector<mx::array>& in, float scale, bool causal, mx::array& out) {
  const mx::array& q = in[0];
  const mx::array& k = in[1];
  const mx::array& v = in[2];
  for (int i = 0; i < 3; ++i) require_dense_depth(in[i]);
  const int64_t heads = q.shape(1);
  const int64_t queries_per_key_head = heads / k.shape(1);
  const int64_t queries = q.shape(2);
  const int64_t tiles = (queries + cpu::kAttentionTileQueries - 1) / cpu::kAttentionTileQueries;
  const int64_t work = q.shape(0) * heads * tiles;
  cpu::parallel_for(work, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t b = item / (heads * tiles);
      const int64_t h = item / tiles % heads;
      const int64_t first = item % tiles * cpu::kAttentionTileQueries;
      const int64_t kv = h / queries_per_key_head;
      const int64_t valid =
          in.size() > 3 ? std::clamp<int64_t>(in[3].data<int32_t>()[b], 0, k.shape(2)) : k.shape(2);
      const cpu::AttentionHead head{
          .q = q.data<float>() + b * q.strides(0) + h * q.strides(1),
          .k = k.data<float>() + b * k.strides(0) + kv * k.strides(1),
          .v = v.data<float>() + b * v.strides(0) + kv * v.strides(1),
          .out = out.data<float>() + (b * queries * heads + h) * q.shape(3),
          .q_stride = q.strides(2),
          .k_stride = k.strides(2),
          .v_stride = v.strides(2),
          .out_stride = heads * q.shape(3),
          .queries = queries,
          .keys = k.shape(2),
          .depth = q.shape(3),
          .scale = scale,
          .causal = causal,
          .valid_keys = valid};
      cpu::attention_tile(head, first, std::min(cpu::kAttentionTileQueries, queries - first));
    }
  });
}

std::vector<mx::array> attention_fallback(const std::vector<mx::array>& in, float scale,
                                          bool causal) {
  const int queries = in[0].shape(2);
  const int keys = in[1].shape(2);
  auto seen = mx::full({1, 1, queries, keys}, true, mx::bool_);
  const auto key_index = mx::reshape(mx::arange(keys, mx::int32), {1, 1, 1, keys});
  if (causal) {
    seen = mx::logical_and(
        seen, key_index <= mx::reshape(mx::arange(queries, mx::int32), {1, 1, queries, 1}));
  }
  if (in.size() > 3) {
    seen = mx::logical_and(seen, key_index < mx::reshape(in[3], {in[0].shape(0), 1, 1, 1}));
  }
  const auto y = mx::fast::scaled_dot_product_attention(in[0], in[1], in[2], scale, "array", seen);
  return {mx::transpose(y, {0, 2, 1, 3})};
}

}  // namespace

mx::array attention(const mx::array& q, const mx::array& k, const mx::array& v, float scale,
                    const AttentionMask& mask) {
  if (q.ndim() != 4 || k.ndim() != 4 || v.shape() != k.shape() || q.shape(0) != k.shape(0) ||
      q.shape(3) != k.shape(3) || q.shape(1) % k.shape(1) != 0 ||
      (mask.causal && q.shape(2) != k.shape(2)) ||
      (mask.valid_keys && mask.valid_keys->shape() != mx::Shape{q.shape(0)})) {
    throw std::invalid_argument("[attention] shapes do not match");
  }
  std::vector<mx::array> inputs = {q, k, v};
  if (mask.valid_keys) inputs.push_back(mx::astype(*mask.valid_keys, mx::int32));
  const bool causal = mask.causal;
  const auto by_token = cpu_op(
      "attention", {q.shape(0), q.shape(2), q.shape(1), q.shape(3)}, std::move(inputs),
      [scale, causal](const auto& in, auto& out) { run_attention(in, scale, causal, out); },
      [scale, causal](const auto& in) { return attention_fallback(in, scale, causal); });
  return mx::transpose(by_token, {0, 2, 1, 3});
}

}  // namespace mere
