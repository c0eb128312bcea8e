#include "nn/layers.h"

#include "kernels/activation.h"
#include "kernels/embedding.h"

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

Array Linear::gated_onto(const Array& residual, const Array& gate,
                         const std::vector<InputPart>& parts) const {
  if (has_adapters()) return gated_residual(residual, gate, (*this)(joined(parts)));
  return linear(parts, weight_, bias_, {.residual = residual, .gate = gate});
}

Array Linear::outputs(const Array& x, int64_t begin, int64_t end) const {
  const auto rows = [&](const Array& a) {
    mx::Shape start(a.ndim(), 0);
    mx::Shape stop = a.shape();
    start[0] = static_cast<int>(begin);
    stop[0] = static_cast<int>(end);
    return mx::slice(a, start, stop);
  };
  LinearWeight part{rows(weight_.weight), std::nullopt, std::nullopt, weight_.bits,
                    weight_.group_size,   end - begin,  weight_.in};
  if (weight_.quantized()) {
    part.scales = rows(*weight_.scales);
    part.biases = rows(*weight_.biases);
  }
  return linear(x, part, bias_ ? std::optional(rows(*bias_)) : std::nullopt);
}

void Linear::add_adapter(const LoraDelta& delta) { adapters_.push_back(delta); }

Embedding::Embedding(const Weights& weights, const std::string& name, int64_t count, int64_t width)
    : table_(weights.get_linear(name, count, width)) {}

Array Embedding::operator()(const Array& ids) const { return embedding(ids, table_); }

}  // namespace mere
