#include "schedulers/flow_match_euler.h"

#include <cmath>
#include <string>
#include <utility>

#include "core/error.h"

namespace mere {
namespace {

// e^mu must stay a normal float32; real values are 0.5 to 10.
constexpr double kMaxMu = 80;

void check_steps(int steps) {
  if (steps >= 1 && steps <= kMaxSteps) return;
  throw UsageError{{"steps_invalid", "steps",
                    "the number of steps is " + std::to_string(steps) + ", not 1 to " +
                        std::to_string(kMaxSteps),
                    ""}};
}

// 1, ..., 1/steps, computed in float64 and stored as float32.
std::vector<float> even_sigmas(int steps) {
  std::vector<float> sigmas(static_cast<size_t>(steps));
  const double last = 1.0 / steps;
  const double gap = steps > 1 ? (last - 1.0) / (steps - 1) : 0;
  for (int i = 0; i < steps; ++i)
    sigmas[static_cast<size_t>(i)] = static_cast<float>(1.0 + i * gap);
  if (steps > 1) sigmas.back() = static_cast<float>(last);
  return sigmas;
}

FlowMatchSchedule finish(std::vector<float> sigmas) {
  FlowMatchSchedule schedule;
  for (const float sigma : sigmas) schedule.timesteps.push_back(sigma * 1000.0F);
  schedule.sigmas = std::move(sigmas);
  schedule.sigmas.push_back(0.0F);
  return schedule;
}

}  // namespace

double flux2_empirical_mu(int64_t image_tokens, int steps) {
  check_steps(steps);
  if (image_tokens < 1) {
    throw UsageError{{"size_invalid", "size", "a picture needs at least one image token", ""}};
  }
  constexpr double kSlope10 = 8.73809524e-05, kOffset10 = 1.89833333;  // line of 10 steps
  constexpr double kSlope200 = 0.00016927, kOffset200 = 0.45666666;    // line of 200 steps
  constexpr int64_t kManyTokens = 4300;
  const auto tokens = static_cast<double>(image_tokens);
  const double mu_200 = kSlope200 * tokens + kOffset200;
  if (image_tokens > kManyTokens) return mu_200;
  const double mu_10 = kSlope10 * tokens + kOffset10;
  const double slope = (mu_200 - mu_10) / 190.0;
  return slope * steps + (mu_200 - 200.0 * slope);
}

FlowMatchSchedule flow_match_dynamic(int steps, double mu) {
  check_steps(steps);
  if (!(std::abs(mu) <= kMaxMu)) {
    throw UsageError{
        {"shift_invalid", "mu", "the time shift mu is not a number from -80 to 80", ""}};
  }
  const auto shift = static_cast<float>(std::exp(mu));
  std::vector<float> sigmas = even_sigmas(steps);
  for (float& sigma : sigmas) sigma = shift / (shift + (1.0F / sigma - 1.0F));
  return finish(std::move(sigmas));
}

FlowMatchSchedule flow_match_static(int steps, double shift) {
  check_steps(steps);
  if (!(shift > 0 && shift <= 1e6)) {
    throw UsageError{
        {"shift_invalid", "shift", "the time shift is not a number above 0 and up to 1e6", ""}};
  }
  const auto factor = static_cast<float>(shift);
  const auto less_one = static_cast<float>(shift - 1.0);
  std::vector<float> sigmas = even_sigmas(steps);
  for (float& sigma : sigmas) sigma = factor * sigma / (1.0F + less_one * sigma);
  return finish(std::move(sigmas));
}

FlowMatchSchedule flow_match_explicit(std::span<const float> sigmas) {
  if (sigmas.empty() || sigmas.size() > static_cast<size_t>(kMaxSteps)) {
    throw UsageError{{"sigmas_invalid", "sigmas",
                      "the list of sigmas holds " + std::to_string(sigmas.size()) +
                          " values, not 1 to " + std::to_string(kMaxSteps),
                      ""}};
  }
  float previous = 1.0F;
  for (size_t i = 0; i < sigmas.size(); ++i) {
    const bool falls = i == 0 ? sigmas[i] <= previous : sigmas[i] < previous;
    if (!falls || !(sigmas[i] > 0)) {
      throw UsageError{{"sigmas_invalid", "sigmas",
                        "sigma " + std::to_string(i) + " is " + std::to_string(sigmas[i]),
                        "sigmas fall from at most 1 and stay above 0; the final 0 is implied"}};
    }
    previous = sigmas[i];
  }
  return finish({sigmas.begin(), sigmas.end()});
}

}  // namespace mere
