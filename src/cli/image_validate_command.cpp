#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/terminal_progress.h"
#include "engine/families.h"
#include "engine/validate.h"

namespace mere::cli {
namespace {

struct ValidateOptions {
  std::string family = "klein";
  std::string test = "all";
  std::string model;
  std::string cases;
  Precision precision = Precision::kFloat32;
  bool json = false;
  bool quiet = false;
};

Document report_document(const ValidateOptions& options, const ValidateReport& report) {
  Document document = {{"status", report.passed ? "passed" : "failed"},
                       {"family", options.family},
                       {"test", options.test},
                       {"passed", report.passed},
                       {"compute_type", report.compute_type},
                       {"cases", Document::array()},
                       {"not_cases", report.not_cases}};
  for (const CaseCheck& check : report.cases) {
    Document tensors = Document::array();
    for (const TensorCheck& tensor : check.tensors) {
      // NaN and infinity become null: JSON has neither.
      tensors.push_back({{"name", tensor.name},
                         {"max_abs", tensor.max_abs},
                         {"rel_l2", tensor.rel_l2},
                         {"passed", tensor.passed},
                         {"judged", tensor.judged},
                         {"problem", tensor.problem}});
    }
    document["cases"].push_back({{"file", check.file},
                                 {"kind", check.kind},
                                 {"passed", check.passed},
                                 {"judged", check.judged},
                                 {"problem", check.problem},
                                 {"tensors", tensors}});
  }
  return document;
}

template <class Check>
const char* verdict(const Check& check) {
  if (!check.judged) return "open";
  return check.passed ? "pass" : "FAIL";
}

void print_report(const ValidateReport& report) {
  size_t passed = 0;
  size_t open = 0;
  for (const CaseCheck& check : report.cases) {
    passed += check.passed ? 1 : 0;
    open += check.judged ? 0 : 1;
    std::fprintf(stderr, "%s  %s%s%s%s%s\n", verdict(check), shown(check.file).c_str(),
                 check.kind.empty() ? "" : " ", shown(check.kind).c_str(),
                 check.problem.empty() ? "" : ": ", shown(check.problem).c_str());
    for (const TensorCheck& tensor : check.tensors) {
      std::fprintf(stderr, "      %s  %-32s max-abs %.3e  rel-l2 %.3e%s%s\n", verdict(tensor),
                   shown(tensor.name).c_str(), tensor.max_abs, tensor.rel_l2,
                   tensor.problem.empty() ? "" : "  ", shown(tensor.problem).c_str());
    }
  }
  for (const std::string& file : report.not_cases) {
    std::fprintf(stderr, "skip  %s is not a case\n", shown(file).c_str());
  }
  std::fprintf(stderr, "%zu of %zu passed\n", passed, report.cases.size());
  if (open > 0) {
    std::fprintf(stderr,
                 "%zu open: products ran in %s, which is held to pictures only; --precision f32 "
                 "judges all\n",
                 open, report.compute_type.c_str());
  }
}

int run_validate(const ValidateOptions& options, const Context& context) {
  if (find_image_family(options.family) == nullptr) {
    std::string known;
    for (const std::string& name : image_family_names()) {
      known += (known.empty() ? "" : ", ") + name;
    }
    throw UsageError{{"family_unknown", "--family",
                      "there is no image family \"" + options.family + "\"", "families: " + known}};
  }
  ValidateRequest request;
  request.family = options.family;
  request.test = options.test;
  request.model = options.model;
  if (!options.cases.empty()) request.cases = options.cases;
  // The progress of every stage of every case would bury the report.
  TerminalProgress progress(ProgressStyle::kQuiet);
  request.precision = options.precision;
  request.models_dir = context.named_models_dir(progress);
  const InterruptGuard interrupt(progress, false);
  const ValidateReport report = validate_images(request, progress);
  if (!options.quiet) print_report(report);
  if (options.json) print_document(report_document(options, report));
  if (report.cases.empty()) print_error("no case was found");
  return report.passed && !report.cases.empty() ? 0 : 1;
}

}  // namespace

void add_image_validate_command(CLI::App& image, Context& context) {
  CLI::App* command = image.add_subcommand("validate",
                                           "Check a family against recorded cases, or a model "
                                           "against itself; exit status 1 when a check fails");
  const auto options = std::make_shared<ValidateOptions>();
  command->add_option("--family", options->family, "Image family")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("-t,--test", options->test,
                   "Stage to check: all, vae, encoder, transformer or pipeline")
      ->check(CLI::IsMember({"all", "vae", "encoder", "transformer", "pipeline"}).description(""))
      ->type_name("STAGE")
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "-m,--model",
          [options](const std::string& text) { options->model = non_empty(text, "--model"); },
          "Installed model or the folder of one; with --cases it replaces the model that each case "
          "names")
      ->type_name("ID|DIR");
  command
      ->add_option_function<std::string>(
          "--cases",
          [options](const std::string& text) { options->cases = non_empty(text, "--cases"); },
          "Folder of recorded cases, or one of them (default: the checks that the family has built "
          "in)")
      ->type_name("DIR");
  command
      ->add_option_function<std::string>(
          "--precision",
          [options](const std::string& text) {
            options->precision = parse_precision(text, "--precision");
          },
          "How the processor computes: f32, which recorded cases expect, or auto, what pictures "
          "are "
          "drawn with (default: f32)")
      ->type_name("auto|f32");
  command->add_flag("--json", options->json, "Print one JSON document; errors too");
  command->add_flag("-q,--quiet", options->quiet, "No report on stderr");
  command->callback([options, &context] {
    context.action = [options, &context] { return run_validate(*options, context); };
  });
}

}  // namespace mere::cli
