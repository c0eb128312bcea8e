#include "kernels/embedding.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/weight_rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int64_t kGrainFloats = 8192;  // least work worth a thread

struct Table {
  int64_t count, width;
  int bits, group_size;
};

// in: ids, then the arrays of the table.
void run_embedding(const std::vector<mx::array>& in, const Table& table, mx::array& out) {
  const DenseData<int32_t> ids(in[0]);
  const auto count = static_cast<int64_t>(in[0].size());
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = ids.data()[i];
    if (id >= 0 && id < table.count) continue;
    throw std::invalid_argument("[embedding] id " + std::to_string(id) + " of a table of " +
                                std::to_string(table.count) + " rows");
  }
  const WeightRows rows(in.data() + 1, table.bits, table.group_size);
  const int64_t grain = std::max<int64_t>(1, kGrainFloats / table.width);
  float* const to = out.data<float>();
  cpu::parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rows.widen(ids.data()[i], to + i * table.width);
  });
}

// No id may read, or in the gradient write, outside the table here either.
mx::array embedding_fallback(const std::vector<mx::array>& in, const Table& table) {
  const auto zero = mx::array(0);
  const auto inside =
      mx::logical_and(in[0] >= zero, in[0] < mx::array(static_cast<int32_t>(table.count)));
  const auto ids = mx::where(inside, in[0], zero);
  const auto rows = [&](const mx::array& a) { return mx::take(a, ids, 0); };
  const auto wide = [&](const mx::array& a) { return mx::astype(rows(a), mx::float32); };
  const auto values = table.bits == 0 ? wide(in[1])
                                      : mx::dequantize(rows(in[1]), wide(in[2]), wide(in[3]),
                                                       table.group_size, table.bits);
  return mx::where(mx::expand_dims(inside, -1), values,
                   mx::array(std::numeric_limits<float>::quiet_NaN()));
}

}  // namespace

mx::array embedding(const mx::array& ids, const LinearWeight& table) {
  require_weight("embedding", table);
  if (ids.dtype() != mx::int32) throw std::invalid_argument("[embedding] ids must be int32");
  mx::Shape shape = ids.shape();
  shape.push_back(static_cast<int>(table.in));
  std::vector<mx::array> inputs = {ids};
  for (mx::array& part : weight_inputs(table)) inputs.push_back(std::move(part));
  const Table described{table.out, table.in, table.bits, table.group_size};
  return cpu_op(
      "embedding", shape, std::move(inputs),
      [described](const auto& in, auto& out) { run_embedding(in, described, out); },
      [described](const auto& in) { return std::vector{embedding_fallback(in, described)}; });
}

}  // namespace mere
