// The distance of computed values from those of a reference.
#pragma once

#include <span>

namespace mere::bench {

class Errors {
 public:
  // std::logic_error when the lengths differ.
  void add(std::span<const float> got, std::span<const float> want);

  // NaN when a value was NaN or infinite.
  double max_abs() const;
  double relative_l2() const;

  // Relative L2 error at most `tolerance`, no value off by more than kWorst times what that allows
  // for the average one, nothing that is NaN or infinite, and at least one value compared.
  bool within(double tolerance) const;

 private:
  static constexpr double kWorst = 50;

  double max_abs_ = 0;
  double squared_error_ = 0;
  double squared_want_ = 0;
  double count_ = 0;
  bool finite_ = true;
};

}  // namespace mere::bench
