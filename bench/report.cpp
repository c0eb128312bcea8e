#include "report.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "kernels/precision.h"

namespace mere::bench {
namespace {

using Document = nlohmann::ordered_json;

// What bounds a case on this machine, and how near it came.
struct Rate {
  double value;
  const char* unit;
  double share;  // of the least time that the machine would need; above 1 when that was noisy
};

Rate rate_of(const Result& result, const MachineLimit& limit) {
  const double seconds = result.timing->median;
  const double share = limit.least_seconds(result.flops, result.bytes) / seconds;
  if (limit.is_compute_bound(result.flops, result.bytes)) {
    return {result.flops / seconds / 1e9, "GFLOP/s", share};
  }
  return {result.bytes / seconds / 1e9, "GB/s", share};
}

std::string isa_cap() {
  const char* isa = std::getenv("MERERUN_CPU_ISA");
  return isa == nullptr ? "" : isa;
}

Document limit_document(const MachineLimit& limit) {
  Document document = {{"threads", limit.threads},
                       {"isa_cap", isa_cap()},
                       {"f32_gflops", limit.f32_flops / 1e9},
                       {"bf16_gflops", nullptr},
                       {"copy_gb_s", limit.copy_bytes / 1e9},
                       {"read_gb_s", limit.read_bytes / 1e9}};
  if (limit.bf16_flops > 0) document["bf16_gflops"] = limit.bf16_flops / 1e9;
  return document;
}

Document result_document(const Result& result, const MachineLimit* limit) {
  const Op& op = *result.measured.op;
  Document document = {{"op", op.name}, {"dtype", result.measured.dtype}};
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    document["sizes"][op.parameters[i]] = result.measured.sizes[i];
  }
  // NaN and infinity become null: JSON has neither.
  document.update({{"passed", result.passed},
                   {"max_abs", result.errors.max_abs()},
                   {"rel_l2", result.errors.relative_l2()},
                   {"tolerance", result.tolerance}});
  if (!result.timing || limit == nullptr) return document;
  const Rate rate = rate_of(result, *limit);
  document.update({{"seconds_median", result.timing->median},
                   {"seconds_best", result.timing->best},
                   {"repeats", result.timing->repeats},
                   {"flop", result.flops},
                   {"bytes", result.bytes},
                   {"rate", rate.value},
                   {"unit", rate.unit},
                   {"share_of_limit", rate.share}});
  return document;
}

}  // namespace

std::string sizes_text(const Op& op, const std::vector<int>& sizes) {
  std::string text;
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    text += (i == 0 ? "" : " ") + op.parameters[i] + "=" + std::to_string(sizes[i]);
  }
  return text;
}

void print_list(std::FILE* to) {
  for (const Op& op : ops()) {
    std::fprintf(to, "%s, dtypes", op.name.c_str());
    for (const std::string& dtype : op.dtypes) std::fprintf(to, " %s", dtype.c_str());
    std::fputc('\n', to);
    for (const auto& sizes : op.shapes) {
      std::fprintf(to, "  %s\n", sizes_text(op, sizes).c_str());
    }
  }
}

void print_limit(std::FILE* to, const MachineLimit& limit) {
  const std::string cap = isa_cap();
  std::fprintf(to, "threads %d, products in %s%s%s\n", limit.threads, compute_type(),
               cap.empty() ? "" : ", nothing above ", cap.c_str());
  std::fprintf(to, "limit of compute: oneDNN matmul f32 %.1f GFLOP/s", limit.f32_flops / 1e9);
  if (limit.bf16_flops > 0) std::fprintf(to, ", bf16 %.1f GFLOP/s", limit.bf16_flops / 1e9);
  std::fprintf(to, "\nlimit of memory: copy %.1f GB/s (read alone %.1f GB/s)\n\n",
               limit.copy_bytes / 1e9, limit.read_bytes / 1e9);
}

void print_heading(std::FILE* to) {
  std::fprintf(to, "%-15s %-6s %-66s %9s %9s %4s %11s %18s %9s\n", "op", "dtype", "sizes",
               "max abs", "rel l2", "", "median", "rate", "of limit");
}

void print_line(std::FILE* to, const Result& result, const MachineLimit* limit) {
  const Op& op = *result.measured.op;
  std::fprintf(to, "%-15s %-6s %-66s %9.1e %9.1e %4s", op.name.c_str(),
               result.measured.dtype.c_str(), sizes_text(op, result.measured.sizes).c_str(),
               result.errors.max_abs(), result.errors.relative_l2(), result.passed ? "ok" : "FAIL");
  if (result.timing && limit != nullptr) {
    const Rate rate = rate_of(result, *limit);
    std::fprintf(to, " %8.3f ms %10.1f %-7s %7.0f %%", result.timing->median * 1e3, rate.value,
                 rate.unit, rate.share * 100);
  }
  std::fputc('\n', to);
  std::fflush(to);
}

void print_json(std::FILE* to, const std::vector<Result>& results, const MachineLimit* limit) {
  bool passed = true;
  Document list = Document::array();
  for (const Result& result : results) {
    passed = passed && result.passed;
    list.push_back(result_document(result, limit));
  }
  Document document = {{"passed", passed}, {"compute_type", compute_type()}};
  document["limit"] = limit == nullptr ? Document() : limit_document(*limit);
  document["results"] = std::move(list);
  std::fprintf(to, "%s\n", document.dump(2).c_str());
}

}  // namespace mere::bench
