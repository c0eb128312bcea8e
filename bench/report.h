// What mere-bench prints: a line for each case as it ends, or one JSON document.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "errors.h"
#include "machine_limit.h"
#include "op.h"
#include "stopwatch.h"

namespace mere::bench {

struct Result {
  Case measured;
  Errors errors;
  double tolerance = 0;
  bool passed = false;
  double flops = 0, bytes = 0;
  std::optional<Timing> timing;  // absent when the case was only compared
};

// "rows=1 in=3072 out=9216"
std::string sizes_text(const Op& op, const std::vector<int>& sizes);

void print_list(std::FILE* to);
void print_limit(std::FILE* to, const MachineLimit& limit);
void print_heading(std::FILE* to);
// `limit` may be nullptr when nothing is timed.
void print_line(std::FILE* to, const Result& result, const MachineLimit* limit);
void print_json(std::FILE* to, const std::vector<Result>& results, const MachineLimit* limit);

}  // namespace mere::bench
