#include "arrays.h"
#include "problems.h"

#include "kernels/activation.h"
#include "kernels/concat.h"
#include "kernels/norm.h"
#include "kernels/ref/reference.h"
#include "kernels/rope.h"
#include "kernels/softmax.h"
#include "kernels/top_k.h"

namespace mere::bench {
namespace {

namespace mx = mlx::core;

constexpr int kComparedRows = 256;
constexpr float kEps = 1e-6F;

mx::array random_input(const mx::Shape& shape, uint32_t seed, float low = -4, float high = 4) {
  mx::array x = random_array(shape, seed, low, high);
  mx::eval(x);
  return x;
}

// An op whose rows do not know each other: reference(some rows of x) is the same rows of the first
// result.
Problem row_problem(const mx::array& x, const std::function<Arrays()>& run,
                    const std::function<Floats(const Floats& rows)>& reference) {
  Problem problem;
  problem.run = run;
  problem.check = [=](const Arrays& results, Errors& errors) {
    const Indices rows = some_of(as_rows(x).shape(0), kComparedRows);
    const mx::array y = mx::reshape(results[0], {as_rows(x).shape(0), -1});
    errors.add(values_of(pick(y, rows, 0)), reference(values_of(pick(as_rows(x), rows, 0))));
  };
  problem.bytes = static_cast<double>(x.nbytes());
  for (const mx::array& result : run()) problem.bytes += static_cast<double>(result.nbytes());
  return problem;
}

Floats as_floats(const std::vector<int32_t>& integers) {
  return {integers.begin(), integers.end()};
}

}  // namespace

Problem rms_norm_problem(const Case& c) {
  const mx::array x = random_input({c["rows"], c["width"]}, 1);
  const mx::array weight = random_input({c["width"]}, 2);
  return row_problem(
      x, [=] { return Arrays{rms_norm(x, weight, kEps)}; },
      [=](const Floats& rows) { return ref::rms_norm(rows, values_of(weight), kEps); });
}

Problem layer_norm_problem(const Case& c) {
  const int width = c["width"];
  const mx::array x = random_input({1, c["tokens"], width}, 1, -1, 2);
  const mx::array scale = random_input({1, 1, width}, 2);
  const mx::array shift = random_input({1, 1, width}, 3);
  return row_problem(
      x, [=] { return Arrays{layer_norm_modulated(x, scale, shift, kEps)}; },
      [=](const Floats& rows) {
        return ref::layer_norm_modulated(rows, values_of(scale), values_of(shift),
                                         std::ssize(rows) / width, width, kEps);
      });
}

Problem rope_problem(const Case& c) {
  const int tokens = c["tokens"];
  const int heads = c["heads"];
  const int depth = c["depth"];
  const bool adjacent = c["adjacent"] != 0;
  const RopePairs pairs = adjacent ? RopePairs::kAdjacent : RopePairs::kHalves;
  // Stored by token, as the projection leaves it.
  mx::array x = mx::transpose(random_input({1, tokens, heads, depth}, 1), {0, 2, 1, 3});
  const mx::array angles = random_input({tokens, depth / 2}, 2);
  mx::array cos = mx::cos(angles);
  mx::array sin = mx::sin(angles);
  mx::eval(x, cos, sin);
  Problem problem;
  problem.run = [=] { return Arrays{rope(x, cos, sin, pairs)}; };
  problem.check = [=](const Arrays& results, Errors& errors) {
    const Indices compared = some_of(tokens, kComparedRows);
    const auto part = [&](const mx::array& a, int axis) {
      return values_of(pick(a, compared, axis));
    };
    errors.add(part(results[0], 2), ref::rope(part(x, 2), part(cos, 0), part(sin, 0),
                                              std::ssize(compared), depth, adjacent));
  };
  problem.bytes = static_cast<double>(2 * x.nbytes() + cos.nbytes() + sin.nbytes());
  return problem;
}

Problem silu_problem(const Case& c) {
  const mx::array x = random_input({c["rows"], c["width"]}, 1);
  return row_problem(
      x, [=] { return Arrays{silu(x)}; }, ref::silu);
}

Problem swiglu_problem(const Case& c) {
  const int width = c["width"];
  const mx::array x = random_input({c["rows"], 2 * width}, 1);
  return row_problem(
      x, [=] { return Arrays{swiglu(x)}; },
      [=](const Floats& rows) { return ref::swiglu(rows, width); });
}

Problem gelu_problem(const Case& c) {
  const bool tanh = c["tanh"] != 0;
  const mx::array x = random_input({c["rows"], c["width"]}, 1);
  return row_problem(
      x, [=] { return Arrays{gelu(x, tanh ? Gelu::kTanh : Gelu::kErf)}; },
      [=](const Floats& rows) { return ref::gelu(rows, tanh); });
}

Problem geglu_problem(const Case& c) {
  const int width = c["width"];
  const bool tanh = c["tanh"] != 0;
  const mx::array x = random_input({c["rows"], 2 * width}, 1);
  return row_problem(
      x, [=] { return Arrays{geglu(x, tanh ? Gelu::kTanh : Gelu::kErf, GateHalf::kFirst)}; },
      [=](const Floats& rows) {
        const Floats gates = ref::gelu(rows, tanh);
        Floats want;
        for (size_t i = 0; i < rows.size(); ++i) {
          const bool is_gate = i / width % 2 == 0;
          if (is_gate) want.push_back(gates[i] * rows[i + width]);
        }
        return want;
      });
}

Problem gated_residual_problem(const Case& c) {
  const int width = c["width"];
  const mx::array x = random_input({1, c["tokens"], width}, 1);
  const mx::array residual = random_input(x.shape(), 2);
  const mx::array gate = random_input({1, 1, width}, 3);
  Problem problem;
  problem.run = [=] { return Arrays{gated_residual(residual, gate, x)}; };
  problem.check = [=](const Arrays& results, Errors& errors) {
    const Floats x_values = values_of(x);
    const Floats gates = values_of(gate);
    Floats want = values_of(residual);
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = static_cast<float>(want[i] + double{gates[i % gates.size()]} * x_values[i]);
    }
    errors.add(values_of(results[0]), want);
  };
  problem.bytes = 3.0 * static_cast<double>(x.nbytes());
  return problem;
}

Problem softmax_problem(const Case& c) {
  const mx::array x = random_input({c["rows"], c["width"]}, 1);
  return row_problem(
      x, [=] { return Arrays{softmax_rows(x)}; },
      [width = c["width"]](const Floats& rows) { return ref::softmax(rows, width); });
}

Problem top_k_problem(const Case& c) {
  const int k = c["k"];
  const mx::array x = random_input({c["rows"], c["width"]}, 1);
  return row_problem(
      x,
      [=] {
        const TopK best = top_k(x, k);
        return Arrays{best.indices, best.values};
      },
      [k, width = c["width"]](const Floats& rows) {
        return as_floats(ref::top_k(rows, width, k));
      });
}

Problem argmax_problem(const Case& c) {
  const mx::array x = random_input({c["rows"], c["width"]}, 1);
  return row_problem(
      x, [=] { return Arrays{argmax_rows(x)}; },
      [width = c["width"]](const Floats& rows) { return as_floats(ref::top_k(rows, width, 1)); });
}

Problem concat_problem(const Case& c) {
  const int rows = c["rows"];
  const int width = c["width"];
  const mx::array whole = random_input({rows, 2 * width}, 1);
  const mx::array first = mx::contiguous(mx::slice(whole, {0, 0}, {rows, width}));
  const mx::array second = mx::contiguous(mx::slice(whole, {0, width}, {rows, 2 * width}));
  mx::eval(first, second);
  return row_problem(
      whole,
      [=] {
        return Arrays{concat({first, second}, -1)};
      },
      [](const Floats& same) { return same; });
}

}  // namespace mere::bench
