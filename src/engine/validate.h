// Runs a folder of golden cases, or a model's own checks, and compares tensor by tensor.
//
//   const ValidateReport report =
//       validate_images({.family = "klein", .cases = "tests/fixtures/klein/cases"}, progress);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "families/image_family.h"
#include "kernels/precision.h"

namespace mere {

struct ValidateRequest {
  std::string family;        // "klein", ...
  std::string test = "all";  // all, vae, encoder, transformer, pipeline
  std::string model{};       // id or folder; with cases: used instead of the model each case names
  std::optional<fs::path> cases;  // a folder of cases, the folder that holds cases/, or one file
  fs::path models_dir{};          // as in ImageRequest
  Precision precision = Precision::kFloat32;  // the recorded cases are exact
};

struct ValidateReport {
  std::vector<CaseCheck> cases;
  std::vector<std::string> not_cases;  // files of the folder that are no cases, e.g. listings
  bool passed = false;                 // at least one case passed and none failed
  std::string compute_type{};          // of the products: "float32", "bfloat16" or "int16"
};

// UsageError when the family, test or folder is unknown.
ValidateReport validate_images(const ValidateRequest& request, Progress& progress);

}  // namespace mere
