#include <cmath>

#include "arrays.h"
#include "problems.h"
#include "weights.h"

#include "kernels/attention.h"
#include "kernels/ref/reference.h"

namespace mere::bench {
namespace {

namespace mx = mlx::core;

// Parts of a large result that are compared.
constexpr int kComparedRows = 68;
constexpr int kComparedOut = 128;
constexpr int kComparedHeads = 6;

// [1, H, L, D] as the projections leave it: stored by token.
mx::array heads_of_tokens(const Case& c, int heads, uint32_t seed) {
  mx::array x =
      mx::transpose(random_array({1, c["tokens"], heads, c["depth"]}, seed, -2, 2), {0, 2, 1, 3});
  mx::eval(x);
  return x;
}

// Rows [first, last) of one head.
Floats head_rows(const mx::array& x, int head, int first, int last) {
  return values_of(mx::slice(x, {0, head, first, 0}, {1, head + 1, last, x.shape(3)}));
}

}  // namespace

Problem linear_problem(const Case& c) {
  const int rows = c["rows"];
  const int in = c["in"];
  mx::array x = random_array({rows, in}, 1);
  mx::eval(x);
  const LinearWeight weight = random_weight(c.dtype, c["out"], in, 2);
  Problem problem;
  problem.run = [=] { return Arrays{linear(x, weight)}; };
  problem.check = [=](const Arrays& results, Errors& errors) {
    const Indices some_rows = some_of(rows, kComparedRows);
    const Indices some_outs = some_of(weight.out, kComparedOut);
    errors.add(values_of(pick(pick(results[0], some_rows, 0), some_outs, 1)),
               ref::linear(values_of(pick(x, some_rows, 0)), weight_rows(weight, some_outs), {},
                           std::ssize(some_rows), in, std::ssize(some_outs)));
  };
  problem.flops = 2.0 * rows * in * c["out"];
  problem.bytes = bytes_of(weight) + 4.0 * rows * (in + c["out"]);
  problem.tolerance = product_tolerance();
  return problem;
}

Problem attention_problem(const Case& c) {
  const int tokens = c["tokens"];
  const int heads = c["heads"];
  const int kv_heads = c["kv-heads"];
  const int depth = c["depth"];
  const bool causal = c["causal"] != 0;
  const float scale = 1.0F / std::sqrt(static_cast<float>(depth));
  const mx::array q = heads_of_tokens(c, heads, 1);
  const mx::array k = heads_of_tokens(c, kv_heads, 2);
  const mx::array v = heads_of_tokens(c, kv_heads, 3);
  Problem problem;
  problem.run = [=] {
    return Arrays{attention(q, k, v, scale, {.causal = causal, .valid_keys = std::nullopt})};
  };
  problem.check = [=](const Arrays& results, Errors& errors) {
    for (const int head : some_of(heads, kComparedHeads)) {
      const int kv_head = head / (heads / kv_heads);
      const Floats keys = head_rows(k, kv_head, 0, tokens);
      const Floats values = head_rows(v, kv_head, 0, tokens);
      for (const int query : some_of(tokens, kComparedRows)) {
        const std::vector<int32_t> seen = {causal ? query + 1 : tokens};
        errors.add(head_rows(results[0], head, query, query + 1),
                   ref::attention(head_rows(q, head, query, query + 1), keys, values, 1, 1, 1, 1,
                                  tokens, depth, scale, false, seen));
      }
    }
  };
  const double pairs = causal ? 0.5 * tokens * (tokens + 1.0) : 1.0 * tokens * tokens;
  problem.flops = 4.0 * heads * depth * pairs;
  problem.bytes = 8.0 * tokens * depth * (heads + kv_heads);
  problem.tolerance = product_tolerance();
  return problem;
}

}  // namespace mere::bench
