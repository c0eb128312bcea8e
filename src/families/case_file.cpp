#include "families/case_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "kernels/precision.h"

namespace mere {
namespace {

constexpr size_t kMaxCaseElements = size_t{1} << 28;
constexpr const char* kPicture = "image";  // decides when products run in a smaller type

template <typename T>
void widen(std::span<const std::byte> data, std::vector<double>& out) {
  for (size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, data.data() + at, sizeof(T));
    out.push_back(static_cast<double>(value));
  }
}

}  // namespace

CaseFile::CaseFile(const fs::path& path) : file_(path), parameters_(Json::object()) {
  const auto it = file_.metadata().find("case");
  if (it != file_.metadata().end()) parameters_ = parse_json(it->second, source() + " (case)");
  check_.file = path.filename().string();
  check_.kind = kind();
}

std::string CaseFile::kind() const { return json_string_or(parameters_, "kind", "", source()); }

std::vector<int64_t> CaseFile::shape(const std::string& name) const { return read(name).shape; }

CaseTensor CaseFile::read(const std::string& name) const {
  const StoredTensor* tensor = file_.find(name);
  const std::string where = source() + ": tensor \"" + printable(name) + "\"";
  if (tensor == nullptr) throw IoError{{"case_invalid", name, where + " is missing", ""}};
  const auto data = file_.data(*tensor);
  if (data.size() > kMaxCaseElements)
    throw IoError{{"case_invalid", name, where + " is too large", ""}};
  CaseTensor out{tensor->shape, {}};
  switch (tensor->type) {
    case StoredType::kF32:
      widen<float>(data, out.values);
      break;
    case StoredType::kF64:
      widen<double>(data, out.values);
      break;
    case StoredType::kI64:
      widen<int64_t>(data, out.values);
      break;
    case StoredType::kI32:
      widen<int32_t>(data, out.values);
      break;
    case StoredType::kU8:
    case StoredType::kBool:
      widen<uint8_t>(data, out.values);
      break;
    default:
      throw IoError{{"case_invalid", name,
                     where + " has a dtype that cases do not use: " +
                         std::string(stored_type_name(tensor->type)),
                     ""}};
  }
  return out;
}

CaseTensor CaseFile::input_values(const std::string& name) {
  inputs_.insert(name);
  return read(name);
}

Array CaseFile::input(const std::string& name) {
  const CaseTensor tensor = input_values(name);
  const std::vector<float> values(tensor.values.begin(), tensor.values.end());
  mx::Shape shape;
  for (const int64_t dim : tensor.shape) shape.push_back(static_cast<int>(dim));
  return array_from(values, shape);
}

void CaseFile::output(const std::string& name, const CaseTensor& actual, double tolerance) {
  if (!has(name) || inputs_.contains(name)) return;
  outputs_.insert(name);
  compare(name, name, actual, tolerance);
}

void CaseFile::output(const std::string& name, const Array& actual, double tolerance) {
  if (has(name)) output(name, case_tensor(actual), tolerance);
}

void CaseFile::output_as(const std::string& label, const std::string& name, const Array& actual) {
  if (!has(name)) return;
  compare(label, name, case_tensor(actual), kCaseTolerance);
}

void CaseFile::compare(const std::string& label, const std::string& name, const CaseTensor& actual,
                       double tolerance) {
  const CaseTensor expected = read(name);
  TensorCheck check = compare_tensors(label, actual, expected, tolerance);
  const bool exact = std::string_view(compute_type()) == "float32";
  if (!check.passed && check.problem.empty() && !exact && std::isfinite(check.rel_l2)) {
    if (name == kPicture) {
      check = compare_tensors(label, actual, expected, kReducedTolerance);
    } else {
      check.judged = false;
    }
  }
  check_.tensors.push_back(std::move(check));
}

CaseCheck CaseFile::finish() {
  for (const auto& [name, tensor] : file_.tensors()) {
    if (inputs_.contains(name) || outputs_.contains(name)) continue;
    check_.tensors.push_back({.name = printable(name), .problem = "nothing computes this tensor"});
  }
  if (outputs_.empty()) check_.problem = "the case holds no expected tensor";
  const auto failed = [](const TensorCheck& t) { return t.judged && !t.passed; };
  const auto is_open = [](const TensorCheck& t) { return !t.judged; };
  const bool good = check_.problem.empty() && std::ranges::none_of(check_.tensors, failed);
  check_.judged =
      !good || outputs_.contains(kPicture) || std::ranges::none_of(check_.tensors, is_open);
  check_.passed = good && check_.judged;
  return std::move(check_);
}

CaseTensor case_tensor(const Array& a) {
  CaseTensor out;
  for (const auto dim : a.shape()) out.shape.push_back(dim);
  out.values = to_doubles(a);
  return out;
}

}  // namespace mere
