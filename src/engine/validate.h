// Runs a folder of golden cases, or a model's own checks, and compares tensor by tensor.
//
//   const ValidateReport report =
//       validate_images({.family = "klein", .cases = "tests/fixtures/klein/cases"}, progress);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/progress.h"

namespace mere {

struct ValidateRequest {
  std::string family;
  std::string test = "all";
  std::string model;
  std::optional<fs::path> cases;
  fs::path models_dir;
};

struct TensorCheck {
  std::string name;
  double max_abs;
  double rel_l2;
  bool passed;
  std::string problem;
};

struct CaseCheck {
  std::string file, kind;
  bool passed;
  std::string problem;
  std::vector<TensorCheck> tensors;
};

struct ValidateReport {
  std::vector<CaseCheck> cases;
  std::vector<std::string> not_cases;
  bool passed;
};

ValidateReport validate_images(const ValidateRequest& request, Progress& progress);

}  // namespace mere
