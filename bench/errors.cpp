#include "errors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace mere::bench {

void Errors::add(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) throw std::logic_error("the reference has another size");
  for (size_t i = 0; i < got.size(); ++i) {
    finite_ = finite_ && std::isfinite(got[i]) && std::isfinite(want[i]);
    const double error = double{got[i]} - want[i];
    max_abs_ = std::max(max_abs_, std::fabs(error));
    squared_error_ += error * error;
    squared_want_ += double{want[i]} * want[i];
  }
  count_ += static_cast<double>(got.size());
}

double Errors::max_abs() const {
  return finite_ ? max_abs_ : std::numeric_limits<double>::quiet_NaN();
}

double Errors::relative_l2() const {
  if (squared_error_ == 0) return 0;
  return std::sqrt(squared_error_ / squared_want_);
}

bool Errors::within(double tolerance) const {
  if (count_ == 0 || !finite_) return false;
  const double average = std::sqrt(squared_want_ / count_);
  return relative_l2() <= tolerance && max_abs_ <= kWorst * tolerance * average;
}

}  // namespace mere::bench
