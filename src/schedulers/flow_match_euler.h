// FlowMatch Euler schedule with the exponential time shift of FLUX.2.
// Source: diffusers FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline (compute_empirical_mu).
//
//   const FlowMatchSchedule schedule = flow_match_dynamic(steps, flux2_empirical_mu(tokens,
//   steps)); for each i < steps: x += (sigmas[i + 1] - sigmas[i]) * velocity(x, timesteps[i] /
//   1000)
//
// Every function throws UsageError naming the argument when steps are not in [1, kMaxSteps], a
// shift is not a usable number, or given sigmas do not fall from at most 1 towards 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mere {

inline constexpr int kMaxSteps = 10'000;

struct FlowMatchSchedule {
  std::vector<float> sigmas;     // steps + 1 values, descending, the last is 0
  std::vector<float> timesteps;  // steps values, sigma * 1000
};

// Klein's empirical mu from the number of generated image tokens and the number of steps. Text and
// reference tokens do not count. Above 4300 tokens it no longer depends on the steps.
double flux2_empirical_mu(int64_t image_tokens, int steps);

// linspace(1, 1/steps, steps) shifted by e^mu / (e^mu + 1/s - 1), computed in the float32/float64
// order of the reference so that values agree to 1e-6. One step has the single sigma 1.
FlowMatchSchedule flow_match_dynamic(int steps, double mu);

// The same with a static shift: s' = shift * s / (1 + (shift - 1) * s), which is the dynamic one
// for e^mu = shift.
FlowMatchSchedule flow_match_static(int steps, double shift);

// Given sigmas (descending, without the final 0) taken as they are, unshifted.
FlowMatchSchedule flow_match_explicit(std::span<const float> sigmas);

}  // namespace mere
