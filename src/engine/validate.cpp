#include "engine/validate.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/json.h"
#include "engine/admission.h"
#include "engine/families.h"
#include "tensor/host_rng.h"

namespace mere {
namespace {

constexpr std::array<std::string_view, 4> kTests = {"vae", "encoder", "transformer", "pipeline"};

// Which --test a stage belongs to; stages of no model part run only with "all".
std::string_view test_of(const std::string& kind) {
  struct Row {
    std::string_view prefix, test;
  };
  static constexpr std::array<Row, 6> kRows = {{{"vae", "vae"},
                                                {"text_encoder", "encoder"},
                                                {"tokenizer", "encoder"},
                                                {"transformer", "transformer"},
                                                {"rope", "transformer"},
                                                {"pipeline", "pipeline"}}};
  const auto* row =
      std::ranges::find_if(kRows, [&](const Row& r) { return kind.starts_with(r.prefix); });
  return row == kRows.end() ? "all" : row->test;
}

// Values of the host noise generator (fixtures/rng): the draw's values at `indices`, its sums, and
// what the generator gives next.
constexpr double kRngTolerance = 3e-7;  // 1 ulp of the cosine or logarithm

std::optional<CaseCheck> run_rng_case(const fs::path& file) {
  if (file.extension() != ".json") return std::nullopt;
  const Json json = parse_json_file(file);
  if (!json.is_object() || !json.contains("generator") || !json.contains("cases"))
    return std::nullopt;
  CaseCheck check{.file = file.filename().string(), .kind = "host_rng"};
  try {
    int number = 0;
    for (const Json& item : json.at("cases")) {
      int64_t count = 1;
      std::string label = "seed " + std::to_string(item.at("seed").get<uint64_t>()) + " [";
      for (const Json& dim : item.at("shape")) {
        count *= json_int(Json{{"dim", dim}}, "dim", 1, 1 << 24, file.string());
        label += (label.back() == '[' ? "" : ",") + std::to_string(dim.get<int64_t>());
        if (count > (1 << 26)) throw IoError{{"case_invalid", "", "shape is too large", ""}};
      }
      HostRng rng(item.at("seed").get<uint64_t>());
      const std::vector<float> values = rng.normal(count);
      CaseTensor actual;
      CaseTensor expected;
      const auto add = [&](double a, double e) {
        actual.values.push_back(a);
        expected.values.push_back(e);
      };
      const Json& indices = item.at("indices");
      for (size_t i = 0; i < indices.size(); ++i) {
        add(values.at(indices[i].get<size_t>()), item.at("values").at(i).get<double>());
      }
      double sum = 0;
      double squares = 0;
      for (const double v : values) {
        sum += v;
        squares += v * v;
      }
      // Sums gather one rounding per value.
      const auto n = static_cast<double>(count);
      add(sum / n, item.at("sum").get<double>() / n);
      add(squares / n, item.at("sum_of_squares").get<double>() / n);
      const std::vector<float> next = rng.normal(4);
      for (size_t i = 0; i < 4; ++i) add(next[i], item.at("next4").at(i).get<double>());
      actual.shape = expected.shape = {static_cast<int64_t>(actual.values.size())};
      check.tensors.push_back(
          compare_tensors("case " + std::to_string(number++) + ": " + label + "]", actual, expected,
                          kRngTolerance));
    }
  } catch (const Json::exception& e) {
    check.problem = file.string() + ": " + printable(e.what());
  } catch (const std::exception& e) {
    check.problem = e.what();
  }
  check.passed = check.problem.empty() && !check.tensors.empty() &&
                 std::ranges::all_of(check.tensors, &TensorCheck::passed);
  return check;
}

struct CaseSet {
  std::vector<fs::path> files;
  fs::path root;  // what model paths of cases are relative to
};

std::vector<fs::path> case_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".safetensors" || extension == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

CaseSet find_cases(const fs::path& given) {
  std::error_code ec;
  const fs::path path = fs::canonical(given, ec);
  if (ec == std::errc::no_such_file_or_directory) {
    throw UsageError{{"cases_missing", "--cases", given.string() + ": no such file or folder", ""}};
  }
  if (ec)
    throw UsageError{{"cases_unreadable", "--cases", given.string() + ": " + ec.message(), ""}};
  const fs::file_status status = fs::status(path, ec);
  if (fs::is_regular_file(status)) return {{path}, path.parent_path().parent_path()};
  if (!fs::is_directory(status)) {
    throw UsageError{{"cases_unreadable", "--cases",
                      given.string() + ": neither a regular file nor a folder", ""}};
  }
  if (fs::is_directory(path / "cases")) return {case_files(path / "cases"), path};
  return {case_files(path), path.parent_path()};
}

// Bytes of the weights below the folder that holds the cases, which is where their models are: more
// than any one of them takes. nullopt when the folder is too large to be looked through.
std::optional<int64_t> weights_below(const fs::path& folder) {
  constexpr int kMaxEntries = 20'000;
  int64_t total = 0;
  int entries = 0;
  std::error_code ec;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, ec);
  for (; !ec && it != fs::recursive_directory_iterator(); it.increment(ec)) {
    if (++entries > kMaxEntries) return std::nullopt;
    if (it->path().extension() != ".safetensors") continue;
    std::error_code unreadable;
    const auto size = it->file_size(unreadable);
    if (!unreadable) total += static_cast<int64_t>(size);
  }
  return ec ? std::nullopt : std::optional(total);
}

AdmissionLease admit(std::optional<int64_t> estimate_bytes, Progress& progress) {
  Workload workload = workload_of({"image", "validate"});
  workload.estimate_bytes = estimate_bytes;
  return Admission().acquire(workload, progress);
}

void run_cases(const ValidateRequest& request, const ImageFamily& family, Progress& progress,
               ValidateReport& report) {
  const CaseSet set = find_cases(*request.cases);
  std::optional<int64_t> estimate = weights_below(set.root);
  std::optional<fs::path> model;
  if (!request.model.empty()) {
    const ModelRoot root =
        resolve_image_model(request.model, request.models_dir, image_family_names());
    model = root.path;
    if (estimate) *estimate += family.describe(root).weight_bytes;
  }
  const AdmissionLease lease = admit(estimate, progress);
  for (const fs::path& file : set.files) {
    progress.check_cancelled();
    try {
      if (auto rng = run_rng_case(file)) {
        if (request.test == "all") report.cases.push_back(std::move(*rng));
        continue;
      }
      const std::string kind = family.case_kind(file);
      if (kind.empty()) {
        report.not_cases.push_back(file.filename().string());
        continue;
      }
      if (request.test != "all" && test_of(kind) != request.test) continue;
      report.cases.push_back(family.run_case({file, set.root, model}, progress));
    } catch (const Cancelled&) {
      throw;
    } catch (const Error& e) {
      report.cases.push_back({.file = file.filename().string(), .problem = e.what()});
    }
  }
}

}  // namespace

ValidateReport validate_images(const ValidateRequest& request, Progress& progress) {
  const ImageFamily* family = find_image_family(request.family);
  if (family == nullptr) {
    throw UsageError{{"family_unknown", "--family",
                      "no image family \"" + printable(request.family) + "\"", ""}};
  }
  if (request.test != "all" && std::ranges::find(kTests, request.test) == kTests.end()) {
    throw UsageError{{"test_unknown", "--test", "no test \"" + printable(request.test) + "\"",
                      "use all, vae, encoder, transformer or pipeline"}};
  }
  set_precision(request.precision);
  ValidateReport report;
  report.compute_type = compute_type();
  if (request.cases) {
    run_cases(request, *family, progress, report);
  } else {
    const ModelRoot root =
        resolve_image_model(request.model, request.models_dir, image_family_names());
    if (root.manifest.family != request.family) {
      throw UsageError{{"family_mismatch", "--model",
                        root.path.string() + ": is of family " + root.manifest.family, ""}};
    }
    const AdmissionLease lease = admit(family->describe(root).weight_bytes, progress);
    for (const std::string_view test : kTests) {
      if (request.test == "all" || request.test == test) {
        report.cases.push_back(family->self_check(root, test, progress));
      }
    }
  }
  report.passed = std::ranges::any_of(report.cases, &CaseCheck::passed) &&
                  std::ranges::none_of(report.cases, [](const CaseCheck& check) {
                    return check.judged && !check.passed;
                  });
  return report;
}

}  // namespace mere
