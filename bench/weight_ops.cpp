#include "problems.h"
#include "weights.h"

#include "kernels/embedding.h"
#include "kernels/quantize.h"
#include "kernels/ref/reference.h"

namespace mere::bench {
namespace {

namespace mx = mlx::core;

constexpr int kComparedRows = 64;
constexpr int kGroupSize = 64;

}  // namespace

Problem embedding_problem(const Case& c) {
  const int tokens = c["tokens"];
  const int count = c["rows"];
  const LinearWeight table = random_weight(c.dtype, count, c["width"], 1);
  Indices chosen;
  for (int i = 0; i < tokens; ++i) chosen.push_back(static_cast<int>(i * int64_t{7919} % count));
  const mx::array ids(chosen.data(), {tokens}, mx::int32);
  Problem problem;
  problem.run = [=] { return Arrays{embedding(ids, table)}; };
  problem.check = [=](const Arrays& results, Errors& errors) {
    errors.add(values_of(results[0]), weight_rows(table, chosen));
  };
  problem.bytes = bytes_of(table) / count * tokens + 4.0 * tokens * c["width"];
  return problem;
}

Problem quantize_problem(const Case& c) {
  const int in = c["in"];
  const int bits = c.dtype[1] - '0';
  const LinearWeight dense = random_weight("bf16", c["out"], in, 1);
  Problem problem;
  problem.run = [=] {
    const LinearWeight w = quantize(dense.weight, bits, kGroupSize);
    return Arrays{w.weight, *w.scales, *w.biases};
  };
  problem.check = [=](const Arrays& results, Errors& errors) {
    const Indices rows = some_of(dense.out, kComparedRows);
    const LinearWeight got{results[0], results[1], results[2], bits, kGroupSize, dense.out, in};
    const ref::Affine want = ref::quantize(weight_rows(dense, rows), bits, kGroupSize);
    // The scales are stored as bfloat16; the codes were chosen before that.
    const auto rounded = [](const Floats& values) {
      const auto count = static_cast<int>(values.size());
      return values_of(mx::astype(mx::array(values.data(), {count}, mx::float32), mx::bfloat16));
    };
    const Floats scales = rounded(want.scales);
    const Floats biases = rounded(want.biases);
    Floats values;
    for (size_t i = 0; i < want.codes.size(); ++i) {
      const size_t group = i / kGroupSize;
      values.push_back(static_cast<float>(want.codes[i]) * scales[group] + biases[group]);
    }
    errors.add(weight_rows(got, rows), values);
  };
  const double count = 1.0 * c["out"] * in;
  problem.bytes = bytes_of(dense) + count * bits / 8 + count / kGroupSize * 4;
  return problem;
}

Problem dequantize_problem(const Case& c) {
  const LinearWeight weight = random_weight(c.dtype, c["out"], c["in"], 1);
  Problem problem;
  problem.run = [=] { return Arrays{dequantize(weight)}; };
  problem.check = [=](const Arrays& results, Errors& errors) {
    const Indices rows = some_of(weight.out, kComparedRows);
    errors.add(values_of(pick(results[0], rows, 0)), weight_rows(weight, rows));
  };
  problem.bytes = bytes_of(weight) + 4.0 * c["out"] * c["in"];
  return problem;
}

}  // namespace mere::bench
