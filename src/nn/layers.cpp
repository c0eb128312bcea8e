#include "nn/layers.h"

namespace mere {

Linear::Linear(const Weights& weights, const std::string& name, int64_t out, int64_t in, bool bias)
    : weight_(weights.get_linear(name, out, in)) {
  if (bias) bias_ = weights.get_f32(name + ".bias", {out});
}

Array Linear::operator()(const Array& x) const {
  Array y = linear(x, weight_, bias_);
  for (const LoraDelta& delta : adapters_) {
    const Array low = linear(x, dense_weight(delta.a));
    const Array change = linear(low, dense_weight(delta.b)) * mx::array(delta.factor);
    if (delta.rows == weight_.out) {
      y = y + change;
      continue;
    }
    mx::Shape start(y.ndim(), 0);
    mx::Shape stop = y.shape();
    start.back() = static_cast<int>(delta.row_offset);
    stop.back() = static_cast<int>(delta.row_offset + delta.rows);
    y = mx::slice_update(y, mx::slice(y, start, stop) + change, start, stop);
  }
  return y;
}

void Linear::add_adapter(const LoraDelta& delta) { adapters_.push_back(delta); }

Embedding::Embedding(const Weights& weights, const std::string& name, int64_t count, int64_t width)
    : table_(weights.get_linear(name, count, width)) {}

Array Embedding::operator()(const Array& ids) const {
  if (!table_.quantized()) return mx::astype(mx::take(table_.weight, ids, 0), mx::float32);
  const auto rows = [&](const Array& a) { return mx::take(a, ids, 0); };
  return mx::dequantize(rows(table_.weight), mx::astype(rows(*table_.scales), mx::float32),
                        mx::astype(rows(*table_.biases), mx::float32), table_.group_size,
                        table_.bits);
}

}  // namespace mere
