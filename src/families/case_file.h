// A golden case: a safetensors file with named inputs, named expected values, and the parameters of
// its stage as a JSON object under metadata key "case".
//
//   CaseFile file(path);
//   const Array x = file.input("hidden_states");
//   file.output("output", model(x));          // compared when the file holds that name
//   return file.finish();                     // a tensor nobody asked for or computed fails
#pragma once

#include <set>
#include <string>

#include "core/json.h"
#include "families/image_family.h"
#include "tensor/safetensors.h"
#include "tensor/tensor.h"

namespace mere {

inline constexpr double kCaseTolerance = 1e-4;  // relative and absolute, float32 compute
// Of pictures when products run in a smaller type; other tensors are then only shown.
inline constexpr double kReducedTolerance = 2e-2;

class CaseFile {
 public:
  explicit CaseFile(const fs::path& path);

  const Json& parameters() const { return parameters_; }
  std::string kind() const;
  std::string source() const { return file_.path().string(); }

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  // Stored shape; IoError naming file and tensor when absent. Also for the two below.
  std::vector<int64_t> shape(const std::string& name) const;
  // The tensor as an input of the stage, float32.
  Array input(const std::string& name);
  CaseTensor input_values(const std::string& name);

  // Compares with the expected tensor of that name; nothing when the file has none.
  void output(const std::string& name, const Array& actual, double tolerance = kCaseTolerance);
  void output(const std::string& name, const CaseTensor& actual, double tolerance = kCaseTolerance);
  // As output(), under another label in the report.
  void output_as(const std::string& label, const std::string& name, const Array& actual);

  CaseCheck finish();

 private:
  CaseTensor read(const std::string& name) const;
  void compare(const std::string& label, const std::string& name, const CaseTensor& actual,
               double tolerance);

  SafetensorsFile file_;
  Json parameters_;
  std::set<std::string> inputs_;
  std::set<std::string> outputs_;
  CaseCheck check_;
};

CaseTensor case_tensor(const Array& a);

}  // namespace mere
