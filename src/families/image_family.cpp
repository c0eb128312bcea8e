#include "families/image_family.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>

namespace mere {
namespace {

int64_t distance(ImageSize a, ImageSize b) {
  return std::abs(a.width - b.width) + std::abs(a.height - b.height);
}

// The legal sides next below and above `side`.
std::vector<int64_t> neighbours(const SizeRule& rule, int64_t side) {
  const int64_t low = (rule.min_side + rule.multiple - 1) / rule.multiple * rule.multiple;
  const int64_t high = rule.max_side / rule.multiple * rule.multiple;
  const int64_t clamped = std::clamp(side, low, high);
  const int64_t below = clamped / rule.multiple * rule.multiple;
  const int64_t above = std::min(high, below + rule.multiple);
  if (below == side || below == above) return {below};
  if (side < low) return {low};
  if (side > high) return {high};
  return {below, above};
}

}  // namespace

bool is_legal_size(const SizeRule& rule, ImageSize size) {
  if (!rule.only.empty()) return std::ranges::find(rule.only, size) != rule.only.end();
  const auto legal = [&](int64_t side) {
    return side >= rule.min_side && side <= rule.max_side && side % rule.multiple == 0;
  };
  return legal(size.width) && legal(size.height);
}

std::vector<ImageSize> nearest_legal_sizes(const SizeRule& rule, ImageSize size) {
  std::vector<ImageSize> candidates = rule.only;
  if (candidates.empty()) {
    for (const int64_t width : neighbours(rule, size.width)) {
      for (const int64_t height : neighbours(rule, size.height)) {
        candidates.push_back({width, height});
      }
    }
  }
  std::ranges::sort(candidates, {},
                    [&](ImageSize c) { return std::tuple(distance(c, size), c.width, c.height); });
  if (candidates.size() > 2) candidates.resize(2);
  return candidates;
}

ImageExtent extent_of(const ImageJob& job, bool guided) {
  return {.size = job.size,
          .references = static_cast<int>(job.references.size()),
          .guided = guided,
          .text_tokens = job.max_sequence_length};
}

TensorCheck compare_tensors(const std::string& name, const CaseTensor& actual,
                            const CaseTensor& expected, double tolerance) {
  TensorCheck check{.name = name};
  if (actual.shape != expected.shape) {
    check.problem = "shape differs from the expected one";
    return check;
  }
  double error_squares = 0;
  double squares = 0;
  bool within = true;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double error = std::abs(actual.values[i] - expected.values[i]);
    // Written so that a NaN fails.
    within = within && error <= tolerance + tolerance * std::abs(expected.values[i]);
    check.max_abs = error > check.max_abs || std::isnan(error) ? error : check.max_abs;
    error_squares += error * error;
    squares += expected.values[i] * expected.values[i];
  }
  check.rel_l2 = squares > 0 ? std::sqrt(error_squares / squares) : std::sqrt(error_squares);
  check.passed = within;
  return check;
}

}  // namespace mere
