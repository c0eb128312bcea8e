// What can be measured: one table of ops (ops.cpp), each with its shapes and a function that makes
// the inputs of one of them.
//
//   for (const Op& op : ops()) { const Problem p = op.make({&op, op.shapes[0], op.dtypes[0]}); ...
//   }
//
// A new op is a function `Problem name_problem(const Case&)` in one of the *_ops.cpp files, its
// line in problems.h and its entry in the table.
#pragma once

#include <functional>
#include <mlx/mlx.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"

namespace mere::bench {

using Arrays = std::vector<mlx::core::array>;

struct Op;

// One shape of one op with one type of weight.
struct Case {
  const Op* op;
  std::vector<int> sizes;  // in the order of op->parameters
  std::string dtype;

  int operator[](std::string_view parameter) const;  // the op must have it
};

// An op on inputs that are in memory.
struct Problem {
  // The graph of one call, not evaluated.
  std::function<Arrays()> run;
  // Adds the errors of the results, or of parts of them when they are large.
  std::function<void(const Arrays& results, Errors& errors)> check;
  double flops = 0;         // 0: only memory counts
  double bytes = 0;         // each input read once and the output written once
  double tolerance = 1e-5;  // of the relative L2 error
};

struct Op {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<std::string> dtypes;           // of the weight; timed with the first unless asked
  std::vector<std::vector<int>> odd_shapes;  // small, compared in full, not timed
  std::vector<std::vector<int>> shapes;      // timed; large ones are compared in parts
  Problem (*make)(const Case&);
};

// Every op, those of one name side by side.
std::span<const Op> ops();

}  // namespace mere::bench
