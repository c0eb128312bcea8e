#include "kernels/attention.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/bf16_panels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"
#include "kernels/precision.h"

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

// Least work worth a thread.
constexpr int64_t kGrainProducts = int64_t{1} << 17;
constexpr int64_t kGrainFloats = int64_t{1} << 15;

constexpr int64_t kMostPacked = int64_t{16} << 20;  // packed keys and values kept at a time

// The heads that attend to one head of keys, and their common mask.
struct KeyHead {
  int64_t batch, index;
  int64_t valid_keys;
};

// out is [B, Lq, H, D], dense.
class Attention {
 public:
  Attention(const std::vector<mx::array>& in, float scale, bool causal, bool bf16, mx::array& out)
      : q_(in[0]),
        k_(in[1]),
        v_(in[2]),
        shape_(in[0].shape()),
        key_heads_(in[1].shape(1)),
        keys_(in[1].shape(2)),
        scale_(scale),
        causal_(causal),
        bf16_(bf16),
        out_(out.data<float>()),
        packed_size_(cpu::attention_packed_size(keys_, shape_[3])) {
    for (int64_t b = 0; b < shape_[0]; ++b) {
      int64_t valid = keys_;
      if (in.size() > 3) {
        valid = std::clamp<int64_t>(in[3].data<int32_t>()[b * in[3].strides(0)], 0, valid);
      }
      for (int64_t h = 0; h < key_heads_; ++h) heads_.push_back({b, h, valid});
    }
  }

  // A few heads at a time: first their keys and values are packed, then all their queries run.
  void run() {
    const auto count = static_cast<int64_t>(heads_.size());
    const int64_t at_once =
        std::clamp<int64_t>(kMostPacked / std::max<int64_t>(1, 2 * packed_size_), 1, count);
    packed_.resize(static_cast<size_t>(2 * at_once * packed_size_));
    for (int64_t first = 0; first < count; first += at_once) {
      run_heads(first, std::min(at_once, count - first));
    }
  }

 private:
  cpu::AttentionHead describe(int64_t first, int64_t slot, int64_t query_head) {
    const KeyHead& head = heads_[first + slot];
    const int64_t h = head.index * (shape_[1] / key_heads_) + query_head;
    return {.q = q_.head(head.batch, h),
            .k = k_.head(head.batch, head.index),
            .v = v_.head(head.batch, head.index),
            .out = out_ + (head.batch * shape_[2] * shape_[1] + h) * shape_[3],
            .q_stride = q_.row_stride(),
            .k_stride = k_.row_stride(),
            .v_stride = v_.row_stride(),
            .out_stride = int64_t{shape_[1]} * shape_[3],
            .queries = shape_[2],
            .keys = keys_,
            .depth = shape_[3],
            .scale = scale_,
            .causal = causal_,
            .valid_keys = head.valid_keys,
            .bf16 = bf16_,
            .packed_k = packed_.data() + 2 * slot * packed_size_,
            .packed_v = packed_.data() + (2 * slot + 1) * packed_size_};
  }

  void run_heads(int64_t first, int64_t count) {
    const int64_t key_tiles = (keys_ + cpu::kAttentionTileKeys - 1) / cpu::kAttentionTileKeys;
    const int64_t packed = std::min(keys_, cpu::kAttentionTileKeys) * shape_[3];
    cpu::parallel_tasks(count * key_tiles, 1 + kGrainFloats / (1 + packed), [&](int64_t task) {
      const int64_t key = task % key_tiles * cpu::kAttentionTileKeys;
      const cpu::AttentionHead head = describe(first, task / key_tiles, 0);
      if (key < head.valid_keys) cpu::attention_pack_tile(head, key);
    });
    const int64_t queries = shape_[2];
    const int64_t tiles = (queries + cpu::kAttentionTileQueries - 1) / cpu::kAttentionTileQueries;
    const int64_t per_key_head = shape_[1] / key_heads_;
    const int64_t products = std::min(queries, cpu::kAttentionTileQueries) * keys_ * shape_[3];
    const int64_t grain = 1 + kGrainProducts / (1 + 2 * products);
    cpu::parallel_tasks(count * per_key_head * tiles, grain, [&](int64_t task) {
      const int64_t head = task / tiles;
      const int64_t query = task % tiles * cpu::kAttentionTileQueries;
      cpu::attention_tile(describe(first, head / per_key_head, head % per_key_head), query,
                          std::min(cpu::kAttentionTileQueries, queries - query));
    });
  }

  Heads q_, k_, v_;
  mx::Shape shape_;  // of q
  int64_t key_heads_, keys_;
  float scale_;
  bool causal_, bf16_;
  float* out_;
  int64_t packed_size_;
  std::vector<KeyHead> heads_;
  std::vector<float> packed_;
};

// Where the work is too little for bfloat16 products to pay for the narrowing.
constexpr int64_t kLeastBf16Queries = 32;

bool bf16_pays(const mx::array& q) {
  return precision() == Precision::kAuto && q.shape(2) >= kLeastBf16Queries &&
         cpu::has_bf16_panels();
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
      [scale, causal](const auto& in, auto& out) {
        Attention(in, scale, causal, bf16_pays(in[0]), out).run();
      },
      [scale, causal](const auto& in) { return attention_fallback(in, scale, causal); });
  return mx::transpose(by_token, {0, 2, 1, 3});
}

}  // namespace mere
