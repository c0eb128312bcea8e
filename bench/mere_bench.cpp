// mere-bench: compares kernels with their plain references, then times them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "cache_sweeper.h"
#include "report.h"

#include "core/error.h"
#include "core/system.h"
#include "kernels/cpu/parallel.h"
#include "kernels/precision.h"

namespace mere::bench {
namespace {

constexpr int kLeastRepeats = 5;
constexpr int kMostSize = 1 << 20;
constexpr double kMostSeconds = 600;
constexpr int kMostThreads = 4096;
constexpr int kMostTogether = 1024;

constexpr const char* kDescription =
    "Compares kernels with their plain references and times them.\n"
    "\n"
    "Every op is compared on small odd shapes, in full. Its timed shapes, those of the models, "
    "are\n"
    "compared in parts. Then each is timed: the median of repeated calls, getting memory for the\n"
    "result included, with none of the inputs in the caches. The rate is in GFLOP/s or GB/s,\n"
    "whichever bounds the shape on this machine, and is given as a share of the limit that the "
    "same\n"
    "process measured: the better of oneDNN's f32 and bf16 matrix products with weights packed as\n"
    "it likes, and the bytes read and written by a copy of memory. A convolution that saves\n"
    "multiplications (Winograd) can exceed the first, and so can fixed point.\n";
constexpr const char* kFooter =
    "\nMERERUN_THREADS and MERERUN_CPU_ISA=avx2 hold for the kernels and for the limits. On a "
    "busy\n"
    "machine, run it under chrt -r 1; it warns when the limits changed meanwhile.\n"
    "Exit status: 0 all within tolerance, 1 not, 64 usage.\n"
    "Example: mere-bench --op linear --dtype q4 --rows 1 --rows 16";

struct Options {
  std::vector<std::string> ops;
  std::vector<std::string> dtypes;
  std::string precision = "auto";
  std::map<std::string, std::vector<int>> sizes;  // by parameter
  int threads = 0;
  double seconds = 1;
  int together = 1;
  bool list = false;
  bool check_only = false;
  bool json = false;
};

[[noreturn]] void refuse(const std::string& field, const std::string& message) {
  throw UsageError{{"usage", field, message, "see mere-bench --help"}};
}

// ---- Options ------------------------------------------------------------------------------------

std::set<std::string> op_names() {
  std::set<std::string> names;
  for (const Op& op : ops()) names.insert(op.name);
  return names;
}

// Parameter to the names of the ops that have it.
std::map<std::string, std::set<std::string>> parameter_users() {
  std::map<std::string, std::set<std::string>> users;
  for (const Op& op : ops()) {
    for (const std::string& parameter : op.parameters) users[parameter].insert(op.name);
  }
  return users;
}

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// A parameter that only switches something has no other values in the table than 0 and 1.
bool is_switch(const std::string& parameter) {
  for (const Op& op : ops()) {
    const auto at = std::ranges::find(op.parameters, parameter) - op.parameters.begin();
    if (at == std::ssize(op.parameters)) continue;
    const auto above_one = [at](const auto& sizes) { return sizes.at(at) > 1; };
    if (std::ranges::any_of(op.shapes, above_one)) return false;
    if (std::ranges::any_of(op.odd_shapes, above_one)) return false;
  }
  return true;
}

// The list of options would be three times as long with the ranges in it.
template <class T>
CLI::Validator in_range(T low, T high) {
  return CLI::Range(low, high).description("");
}

void declare_options(CLI::App& app, Options& options) {
  app.footer(kFooter);
  app.add_flag("--list", options.list, "Print the ops, their dtypes and timed shapes");
  app.add_option("--op", options.ops, "Op to measure, or all; may be given several times")
      ->type_name("NAME");
  app.add_option("--dtype", options.dtypes,
                 "Type of the weight, or all; default: the first of the op when timing, all with "
                 "--check-only")
      ->type_name("NAME");
  app.add_option("--precision", options.precision,
                 "f32 or auto (default): what products may run in, as of mere.run")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "f32"}).description(""));
  app.add_option("--threads", options.threads, "Threads (default: MERERUN_THREADS, else all)")
      ->type_name("N")
      ->check(in_range(1, kMostThreads));
  app.add_option("--seconds", options.seconds, "Time each shape for at least so long (default 1)")
      ->type_name("S")
      ->check(in_range(0.0, kMostSeconds));
  app.add_option("--together", options.together,
                 "Calls in one evaluation, each with its own inputs, as the layers of a model are "
                 "(default 1)")
      ->type_name("N")
      ->check(in_range(1, kMostTogether));
  app.add_flag("--check-only", options.check_only, "Compare, and time nothing");
  app.add_flag("--json", options.json, "One JSON document on stdout, the table on stderr");
  for (const auto& [parameter, users] : parameter_users()) {
    app.add_option("--" + parameter, options.sizes[parameter], "Of " + joined(users))
        ->group("Sizes, instead of those of the timed shapes; may be given several times")
        ->type_name("N")
        ->check(is_switch(parameter) ? in_range(0, 1) : in_range(1, kMostSize));
  }
}

// ---- Cases --------------------------------------------------------------------------------------

bool is_all(const std::vector<std::string>& names) {
  return names == std::vector<std::string>{"all"};
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::vector<const Op*> chosen_ops(const Options& options) {
  if (options.ops.empty()) refuse("--op", "name an op with --op, or all");
  const std::set<std::string> known = op_names();
  std::vector<const Op*> chosen;
  for (const std::string& name : options.ops) {
    if (name == "all" || known.contains(name)) continue;
    refuse("--op", "unknown op '" + printable(name) + "'; ops: " + joined(known));
  }
  for (const Op& op : ops()) {
    if (has(options.ops, "all") || has(options.ops, op.name)) chosen.push_back(&op);
  }
  for (const auto& [parameter, values] : options.sizes) {
    const auto has_it = [&name = parameter](const Op* op) { return has(op->parameters, name); };
    if (values.empty() || std::ranges::any_of(chosen, has_it)) continue;
    refuse("--" + parameter, "no chosen op has --" + parameter);
  }
  return chosen;
}

std::vector<std::string> chosen_dtypes(const Op& op, const Options& options) {
  if (options.dtypes.empty() && !options.check_only) return {op.dtypes.front()};
  if (options.dtypes.empty() || is_all(options.dtypes)) return op.dtypes;
  std::vector<std::string> chosen;
  std::ranges::copy_if(op.dtypes, std::back_inserter(chosen),
                       [&](const std::string& dtype) { return has(options.dtypes, dtype); });
  return chosen;
}

// The shapes of the table with the sizes of the command line put in, each once.
std::vector<std::vector<int>> timed_shapes(const Op& op, const Options& options) {
  std::vector<std::vector<int>> shapes = op.shapes;
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    const std::vector<int>& values = options.sizes.at(op.parameters[i]);
    if (values.empty()) continue;
    std::vector<std::vector<int>> changed;
    for (const auto& shape : shapes) {
      for (const int value : values) {
        changed.push_back(shape);
        changed.back()[i] = value;
      }
    }
    shapes = std::move(changed);
  }
  std::vector<std::vector<int>> unique;
  for (const auto& shape : shapes) {
    if (std::ranges::find(unique, shape) == unique.end()) unique.push_back(shape);
  }
  return unique;
}

bool sizes_given(const Op& op, const Options& options) {
  return std::ranges::any_of(op.parameters, [&](const std::string& parameter) {
    return !options.sizes.at(parameter).empty();
  });
}

// ---- Measuring ----------------------------------------------------------------------------------

Result compare(const Case& c, const Problem& problem) {
  Result result;
  result.measured = c;
  result.tolerance = problem.tolerance;
  result.flops = problem.flops;
  result.bytes = problem.bytes;
  const Arrays results = problem.run();
  mlx::core::eval(results);
  problem.check(results, result.errors);
  result.passed = result.errors.within(problem.tolerance);
  return result;
}

// Per call, of `together` calls in one evaluation, each with inputs of its own.
Timing time_calls(const Case& c, const Problem& problem, const Options& options,
                  CacheSweeper& caches) {
  if (problem.bytes * options.together > static_cast<double>(available_memory_bytes()) / 2) {
    refuse("--together", "so many calls do not fit in memory");
  }
  std::vector<Problem> problems = {problem};
  while (std::ssize(problems) < options.together) problems.push_back(c.op->make(c));
  const auto call = [&] {
    Arrays results;
    for (const Problem& one : problems) {
      const Arrays arrays = one.run();
      results.insert(results.end(), arrays.begin(), arrays.end());
    }
    mlx::core::eval(results);
  };
  call();
  Timing timing = repeat(
      options.seconds, kLeastRepeats, [&] { cpu::on_passing_thread([&] { caches.sweep(); }); },
      call);
  timing.best /= options.together;
  timing.median /= options.together;
  return timing;
}

std::vector<Result> measure(const Options& options, const MachineLimit* limit, std::FILE* table) {
  CacheSweeper caches;
  std::vector<Result> results;
  const auto finish = [&](Result result) {
    print_line(table, result, limit);
    results.push_back(std::move(result));
  };
  for (const Op* op : chosen_ops(options)) {
    for (const std::string& dtype : chosen_dtypes(*op, options)) {
      for (const auto& sizes : op->odd_shapes) {
        const Case c{op, sizes, dtype};
        finish(compare(c, op->make(c)));
      }
      if (options.check_only && !sizes_given(*op, options)) continue;
      for (const auto& sizes : timed_shapes(*op, options)) {
        const Case c{op, sizes, dtype};
        const Problem problem = op->make(c);
        Result result = compare(c, problem);
        const bool timed = result.passed && !options.check_only;
        if (timed) result.timing = time_calls(c, problem, options, caches);
        finish(std::move(result));
      }
    }
  }
  if (results.empty()) refuse("--dtype", "no chosen op has that --dtype");
  return results;
}

// Another program that takes a core halves the limits, the kernels or both.
void warn_when_limits_changed(const MachineLimit& before) {
  constexpr double kQuiet = 1.1;
  const MachineLimit after = measure_machine_limit();
  const auto changed = [](double a, double b) { return std::max(a, b) > kQuiet * std::min(a, b); };
  if (!changed(before.compute(), after.compute()) && !changed(before.memory(), after.memory())) {
    return;
  }
  std::fprintf(stderr,
               "mere-bench: warning: the machine was not quiet: its limits went from %.1f to %.1f "
               "GFLOP/s and from %.1f to %.1f GB/s\n",
               before.compute() / 1e9, after.compute() / 1e9, before.memory() / 1e9,
               after.memory() / 1e9);
}

int run(const Options& options) {
  if (options.list) {
    print_list(stdout);
    return 0;
  }
  chosen_ops(options);  // mistakes before anything is measured
  if (std::isnan(options.seconds)) refuse("--seconds", "not a number");
  if (options.threads > 0) {
    ::setenv("MERERUN_THREADS", std::to_string(options.threads).c_str(), 1);
  }
  if (const char* name = cpu::wrong_environment())
    refuse(name, std::string(name) + " is not valid");
  set_precision(options.precision == "f32" ? Precision::kFloat32 : Precision::kAuto);
  std::FILE* const table = options.json ? stderr : stdout;
  std::optional<MachineLimit> measured;
  if (!options.check_only) {
    measured = measure_machine_limit();
    print_limit(table, *measured);
  }
  const MachineLimit* const limit = measured ? &*measured : nullptr;
  print_heading(table);
  const std::vector<Result> results = measure(options, limit, table);
  if (options.json) print_json(stdout, results, limit);
  if (std::fflush(stdout) != 0) {
    std::fprintf(stderr, "mere-bench: error: cannot write the results\n");
    return 1;
  }
  if (limit != nullptr) warn_when_limits_changed(*limit);
  const auto failed = std::ranges::count_if(results, [](const Result& r) { return !r.passed; });
  if (failed == 0) return 0;
  std::fprintf(stderr, "mere-bench: error: %td of %zu cases are not within tolerance\n", failed,
               results.size());
  return 1;
}

int fail(const char* what, int status) {
  std::fprintf(stderr, "mere-bench: error: %s\n", what);
  return status;
}

}  // namespace
}  // namespace mere::bench

int main(int argc, char** argv) {
  using namespace mere::bench;
  constexpr int kUsage = 64;
  mere::restart_to_spin_briefly(argv);
  try {
    Options options;
    CLI::App app(kDescription, "mere-bench");
    declare_options(app, options);
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp& help) {
      return app.exit(help);
    } catch (const CLI::ParseError& error) {
      return fail(error.what(), kUsage);
    }
    return run(options);
  } catch (const mere::Error& error) {
    return fail(error.what(), mere::exit_status(error.kind()));
  } catch (const std::invalid_argument& error) {
    return fail(error.what(), kUsage);  // sizes that an op refuses
  } catch (const std::bad_alloc&) {
    return fail("out of memory", 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
