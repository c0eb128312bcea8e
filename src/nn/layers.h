// Layers shared by models: linear with adapters, embedding, and the record of intermediates.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "lora/adapter.h"
#include "tensor/tensor.h"
#include "tensor/weights.h"

namespace mere {

// Intermediates of a forward pass by name, for golden tests. Models take a Taps* that is usually
// null.
using Taps = std::map<std::string, Array>;

inline void tap(Taps* taps, const std::string& name, const Array& value) {
  if (taps != nullptr) taps->insert_or_assign(name, value);
}

// y = x W^T + bias + sum of factor * (x A^T) B^T over the adapters. The weight stays as stored.
class Linear {
 public:
  // Reads `name`.weight [out, in] and, with `bias`, `name`.bias [out].
  Linear(const Weights& weights, const std::string& name, int64_t out, int64_t in,
         bool bias = false);

  Array operator()(const Array& x) const;  // [..., in] -> [..., out]
  // residual + gate y for x whose columns are `parts`; shapes as gated_residual's.
  Array gated_onto(const Array& residual, const Array& gate,
                   const std::vector<InputPart>& parts) const;
  // Outputs [begin, end) alone. Only without adapters.
  Array outputs(const Array& x, int64_t begin, int64_t end) const;
  bool has_adapters() const { return !adapters_.empty(); }
  void add_adapter(const LoraDelta& delta);
  void clear_adapters() { adapters_.clear(); }
  int64_t out() const { return weight_.out; }
  int64_t in() const { return weight_.in; }

 private:
  LinearWeight weight_;
  std::optional<Array> bias_;
  std::vector<LoraDelta> adapters_;
};

// Rows of a [count, width] table, floating or affine quantised.
class Embedding {
 public:
  Embedding(const Weights& weights, const std::string& name, int64_t count, int64_t width);

  Array operator()(const Array& ids) const;  // [B, L] int32 -> [B, L, width] float32

 private:
  LinearWeight table_;
};

}  // namespace mere
