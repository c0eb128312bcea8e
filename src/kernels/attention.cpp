#include "kernels/attention.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

// [B, H, L, D] as the matrix product takes each head: dense rows that do not overlap. Copied when
// the array is not stored so.
class Heads {
 public:
  explicit Heads(const mx::array& a) {
    const int64_t length = a.shape(2);
    const int64_t depth = a.shape(3);
    row_stride_ = depth;
    if ((depth <= 1 || a.strides(3) == 1) && (length <= 1 || a.strides(2) >= depth)) {
      data_ = a.data<float>();
      batch_stride_ = a.strides(0);
      head_stride_ = a.strides(1);
      if (length > 1) row_stride_ = a.strides(2);
    } else {
      copy_ = dense_copy<float>(a);
      data_ = copy_.data();
      head_stride_ = length * depth;
      batch_stride_ = a.shape(1) * head_stride_;
    }
  }

  const float* head(int64_t b, int64_t h) const {
    return data_ + b * batch_stride_ + h * head_stride_;
  }
  int64_t row_stride() const { return row_stride_; }

 private:
  std::vector<float> copy_;
  const float* data_ = nullptr;
  int64_t batch_stride_ = 0, head_stride_ = 0, row_stride_ = 0;
};

constexpr int64_t kGrainProducts = int64_t{1} << 17;  // least work worth a thread

// out is [B, Lq, H, D], dense.
void run_attention(const std::vector<mx::array>& in, float scale, bool causal, mx::array& out) {
  const mx::array& q = in[0];
  const mx::array& k = in[1];
  const Heads q_heads(q);
  const Heads k_heads(k);
  const Heads v_heads(in[2]);
  const int64_t heads = q.shape(1);
  const int64_t queries_per_key_head = heads / k.shape(1);
  const int64_t queries = q.shape(2);
  const int64_t tiles = (queries + cpu::kAttentionTileQueries - 1) / cpu::kAttentionTileQueries;
  const int64_t work = q.shape(0) * heads * tiles;
  const int64_t products = std::min(queries, cpu::kAttentionTileQueries) * k.shape(2) * q.shape(3);
  const int64_t grain = 1 + kGrainProducts / (1 + 2 * products);
  cpu::parallel_for(work, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t b = item / (heads * tiles);
      const int64_t h = item / tiles % heads;
      const int64_t first = item % tiles * cpu::kAttentionTileQueries;
      const int64_t kv = h / queries_per_key_head;
      int64_t valid = k.shape(2);
      if (in.size() > 3) {
        valid = std::clamp<int64_t>(in[3].data<int32_t>()[b * in[3].strides(0)], 0, valid);
      }
      const cpu::AttentionHead head{
          .q = q_heads.head(b, h),
          .k = k_heads.head(b, kv),
          .v = v_heads.head(b, kv),
          .out = out.data<float>() + (b * queries * heads + h) * q.shape(3),
          .q_stride = q_heads.row_stride(),
          .k_stride = k_heads.row_stride(),
          .v_stride = v_heads.row_stride(),
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
  // A query that sees nothing attends to everything, so that no NaN arises, and is then zeroed.
  const auto sees_any = mx::any(seen, -1, true);
  seen = mx::logical_or(seen, mx::logical_not(sees_any));
  const auto y = mx::fast::scaled_dot_product_attention(in[0], in[1], in[2], scale, "array", seen);
  return {mx::transpose(mx::where(sees_any, y, mx::array(0.0F)), {0, 2, 1, 3})};
}

}  // namespace

mx::array attention(const mx::array& q, const mx::array& k, const mx::array& v, float scale,
                    const AttentionMask& mask) {
  require_float32("attention", {q, k, v});
  if (!(scale > 0)) throw std::invalid_argument("[attention] scale must be positive");
  if (q.ndim() != 4 || k.ndim() != 4 || v.shape() != k.shape() || q.shape(0) != k.shape(0) ||
      q.shape(3) != k.shape(3) || k.shape(1) == 0 || q.shape(1) % k.shape(1) != 0 ||
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
