#include "tensor/host_rng.h"

#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace mere {
namespace {

constexpr size_t kStateSize = 624;
constexpr size_t kShift = 397;
constexpr double kPi = 3.14159265358979323846;

// The reference computes log, sine and cosine of a block with the single-precision polynomials of
// the Cephes library, compiled with fused multiply-add. The same operations in the same order give
// the same bits on every machine; correctly rounded values would differ by up to 2 ulp.

// Logarithm of a normal x > 0.
float block_log(float x) {
  constexpr std::array kCoefficients = {7.0376836292e-2F,  -1.1514610310e-1F, 1.1676998740e-1F,
                                        -1.2420140846e-1F, 1.4249322787e-1F,  -1.6668057665e-1F,
                                        2.0000714765e-1F,  -2.4999993993e-1F, 3.3333331174e-1F};
  constexpr float kSqrtHalf = 0.707106781186547524F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  int power = 0;
  const float fraction = std::frexp(x, &power);  // [0.5, 1)
  const bool small = fraction < kSqrtHalf;
  const float exponent = static_cast<float>(small ? power - 1 : power);
  const float m = (fraction - 1.0F) + (small ? fraction : 0.0F);  // [sqrt(1/2), sqrt(2)) - 1
  const float m2 = m * m;
  float sum = kCoefficients[0];
  for (size_t i = 1; i < kCoefficients.size(); ++i) sum = std::fma(sum, m, kCoefficients[i]);
  sum = std::fma(sum * m, m2, exponent * kLn2Low);
  sum = std::fma(m2, -0.5F, sum);
  return std::fma(exponent, kLn2High, m + sum);
}

struct SineCosine {
  float sine;
  float cosine;
};

// Of an angle in [0, 2 pi].
SineCosine block_sine_cosine(float angle) {
  // pi/4 in three parts, so that the subtraction loses nothing.
  constexpr float kQuarterPi1 = 0.78515625F;
  constexpr float kQuarterPi2 = 2.4187564849853515625e-4F;
  constexpr float kQuarterPi3 = 3.77489497744594108e-8F;
  const int octant = (static_cast<int>(angle * 1.27323954473516F) + 1) & ~1;
  const auto turns = static_cast<float>(octant);
  float x = std::fma(turns, -kQuarterPi1, angle);
  x = std::fma(turns, -kQuarterPi2, x);
  x = std::fma(turns, -kQuarterPi3, x);  // [-pi/4, pi/4]
  const float x2 = x * x;
  float even = std::fma(2.443315711809948e-5F, x2, -1.388731625493765e-3F);
  even = std::fma(even, x2, 4.166664568298827e-2F) * x2;
  even = std::fma(even, x2, -(x2 * 0.5F)) + 1.0F;
  float odd = std::fma(-1.9515295891e-4F, x2, 8.3321608736e-3F);
  odd = std::fma(odd, x2, -1.6666654611e-1F) * x2;
  odd = std::fma(odd, x, x);
  const bool swapped = (octant & 2) != 0;
  const float sine = swapped ? even : odd;
  const float cosine = swapped ? odd : even;
  return {(octant & 4) != 0 ? -sine : sine, ((octant - 2) & 4) == 0 ? -cosine : cosine};
}

}  // namespace

HostRng::HostRng(uint64_t seed) {
  state_[0] = static_cast<uint32_t>(seed);
  for (size_t i = 1; i < kStateSize; ++i) {
    state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  }
}

uint32_t HostRng::next_uint32() {
  if (position_ == static_cast<int>(kStateSize)) {
    for (size_t i = 0; i < kStateSize; ++i) {
      const uint32_t y = (state_[i] & 0x80000000U) | (state_[(i + 1) % kStateSize] & 0x7FFFFFFFU);
      state_[i] = state_[(i + kShift) % kStateSize] ^ (y >> 1) ^ ((y & 1U) * 0x9908B0DFU);
    }
    position_ = 0;
  }
  uint32_t y = state_[static_cast<size_t>(position_++)];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9D2C5680U;
  y ^= (y << 15) & 0xEFC60000U;
  return y ^ (y >> 18);
}

double HostRng::next_uniform53() {
  const uint64_t high = next_uint32();
  const uint64_t low = next_uint32();
  return static_cast<double>(((high << 32) | low) & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
}

float HostRng::next_uniform24() {
  return static_cast<float>(next_uint32() & ((1U << 24) - 1)) * 0x1p-24F;
}

double HostRng::next_normal() {
  if (cached_normal_) return *std::exchange(cached_normal_, std::nullopt);
  const double u1 = next_uniform53();
  const double u2 = next_uniform53();
  const double radius = std::sqrt(-2.0 * std::log1p(-u2));
  const double theta = 2.0 * kPi * u1;
  cached_normal_ = radius * std::sin(theta);
  return radius * std::cos(theta);
}

// Values 0..7 give the radii, values 8..15 the angles.
void HostRng::fill_16(float* out) {
  for (int i = 0; i < 8; ++i) {
    const float radius = std::sqrt(-2.0F * block_log(1.0F - out[i]));
    const SineCosine angle = block_sine_cosine(static_cast<float>(2.0 * kPi) * out[i + 8]);
    out[i] = radius * angle.cosine;
    out[i + 8] = radius * angle.sine;
  }
}

std::vector<float> HostRng::normal(int64_t count) {
  if (count < 0) throw InternalError{{"count_negative", "", "noise of a negative size", ""}};
  std::vector<float> values(static_cast<size_t>(count));
  if (values.size() < 16) {
    for (float& value : values) value = static_cast<float>(next_normal());
    return values;
  }
  for (float& value : values) value = next_uniform24();
  size_t done = 0;
  for (; done + 16 <= values.size(); done += 16) fill_16(values.data() + done);
  if (done < values.size()) {
    // The last 16 values are drawn again as one block; it overwrites up to 15 finished ones.
    float* tail = values.data() + values.size() - 16;
    for (int i = 0; i < 16; ++i) tail[i] = next_uniform24();
    fill_16(tail);
  }
  return values;
}

}  // namespace mere
