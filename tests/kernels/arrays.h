// Arrays with known values in every storage order, and comparisons, for the kernel tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <mlx/mlx.h>
#include <random>
#include <string>
#include <vector>

namespace mere::test {

namespace mx = mlx::core;
using Floats = std::vector<float>;
using Arrays = std::vector<mx::array>;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline size_t element_count(const mx::Shape& shape) {
  size_t count = 1;
  for (const auto size : shape) count *= static_cast<size_t>(size);
  return count;
}

inline Floats random_floats(size_t count, uint32_t seed, float low = -1, float high = 1) {
  std::mt19937 bits(seed);
  Floats values(count);
  for (float& v : values) v = low + (high - low) * static_cast<float>(bits() >> 8) * 0x1p-24F;
  return values;
}

inline mx::array to_array(const Floats& values, const mx::Shape& shape) {
  return mx::array(values.data(), shape, mx::float32);
}

inline mx::array random_array(const mx::Shape& shape, uint32_t seed, float low = -1,
                              float high = 1) {
  return to_array(random_floats(element_count(shape), seed, low, high), shape);
}

// Values of `a`, widened to float32, in row-major order.
inline Floats values_of(const mx::array& a) {
  mx::array dense = mx::contiguous(mx::astype(a, mx::float32));
  mx::eval(dense);
  return {dense.data<float>(), dense.data<float>() + dense.size()};
}

// Evaluated views: same values as `a`, stored otherwise.

// The middle of an array whose last axis is longer by an odd number of elements.
inline mx::array inside_wider(const mx::array& a) {
  const auto pad = [&](int width) {
    mx::Shape shape = a.shape();
    shape.back() = width;
    return mx::full(shape, kNan, a.dtype());
  };
  mx::array wide = mx::concatenate({pad(3), a, pad(4)}, -1);
  mx::Shape start(a.ndim(), 0);
  mx::Shape stop = a.shape();
  start.back() = 3;
  stop.back() += 3;
  mx::array view = mx::slice(wide, start, stop);
  mx::eval(view);
  return view;
}

// A transposed view: axes `i` and `j` of the memory are exchanged.
inline mx::array stored_swapped(const mx::array& a, int i, int j) {
  mx::array stored = mx::contiguous(mx::swapaxes(a, i, j));
  mx::array view = mx::swapaxes(stored, i, j);
  mx::eval(view);
  return view;
}

// Every other element of a last axis twice as long, NaN between.
inline mx::array every_other(const mx::array& a) {
  mx::Shape twice = a.shape();
  twice.back() *= 2;
  mx::array wide = mx::reshape(mx::stack({a, mx::full(a.shape(), kNan, a.dtype())}, -1), twice);
  mx::Shape step(a.ndim(), 1);
  step.back() = 2;
  mx::array view = mx::slice(wide, mx::Shape(a.ndim(), 0), twice, step);
  mx::eval(view);
  return view;
}

// Stored backwards along `axis`: a negative stride.
inline mx::array stored_backwards(const mx::array& a, int axis) {
  const auto backwards = [axis](const mx::array& from) {
    mx::Shape start(from.ndim(), 0);
    mx::Shape stop = from.shape();
    mx::Shape step(from.ndim(), 1);
    start[axis] = from.shape(axis) - 1;
    stop[axis] = -from.shape(axis) - 1;
    step[axis] = -1;
    return mx::slice(from, start, stop, step);
  };
  mx::array view = backwards(mx::contiguous(backwards(a)));
  mx::eval(view);
  return view;
}

// Euclidean norm of the error over that of the wanted values.
template <class Wanted>
double relative_error(const Floats& got, const std::vector<Wanted>& want) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(double{got[i]} - want[i], 2);
    norm += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(error / norm);
}
inline double relative_error(const mx::array& got, const Floats& want) {
  return relative_error(values_of(got), want);
}

// |got - want| <= absolute + relative * |want| everywhere; NaN equals only NaN.
inline void expect_close(const Floats& got, const Floats& want, double relative = 1e-5,
                         double absolute = 1e-5) {
  ASSERT_EQ(got.size(), want.size());
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double limit = absolute + relative * std::fabs(double{want[i]});
    const bool both_nan = std::isnan(got[i]) && std::isnan(want[i]);
    if (both_nan || got[i] == want[i] || std::fabs(double{got[i]} - want[i]) <= limit) continue;
    if (++wrong <= 3) ADD_FAILURE() << "at " << i << ": got " << got[i] << ", want " << want[i];
  }
  EXPECT_EQ(wrong, 0U) << "of " << got.size();
}

inline void expect_close(const mx::array& got, const Floats& want, double relative = 1e-5,
                         double absolute = 1e-5) {
  expect_close(values_of(got), want, relative, absolute);
}

inline bool all_finite(const mx::array& a) {
  for (const float v : values_of(a)) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}

// `values` with one element replaced.
inline Floats with_value(Floats values, size_t at, float value) {
  values.at(at) = value;
  return values;
}

using Op = std::function<mx::array(const Arrays&)>;

// Two evaluations give the same bits.
inline void expect_deterministic(const Op& op, const Arrays& inputs) {
  EXPECT_EQ(values_of(op(inputs)), values_of(op(inputs)));
}

// The composed MLX operations (what vmap uses) give what the kernel gives.
inline void expect_fallback_agrees(const Op& op, const Arrays& inputs, double relative = 1e-4,
                                   double absolute = 1e-5) {
  Arrays stacked;
  for (const mx::array& input : inputs) stacked.push_back(mx::expand_dims(input, 0));
  const auto mapped = mx::vmap([&](const Arrays& in) { return Arrays{op(in)}; },
                               std::vector<int>(inputs.size(), 0), std::vector<int>{0});
  expect_close(mapped(stacked).at(0), values_of(op(inputs)), relative, absolute);
}

// Gradients of a weighted sum of op(inputs) with respect to inputs `argnums`, against central
// differences. Keep the inputs small: every element costs two evaluations.
inline void expect_gradients(const Op& op, const Arrays& inputs, const std::vector<int>& argnums,
                             double tolerance = 3e-3) {
  const mx::array weights = random_array(op(inputs).shape(), 77);
  const auto loss = [&](const Arrays& in) { return mx::sum(op(in) * weights); };
  const auto gradients = mx::grad([&](const Arrays& in) { return loss(in); }, argnums)(inputs);
  ASSERT_EQ(gradients.size(), argnums.size());
  constexpr float kStep = 1e-2F;
  for (size_t a = 0; a < argnums.size(); ++a) {
    const mx::array& input = inputs.at(static_cast<size_t>(argnums[a]));
    ASSERT_EQ(gradients[a].shape(), input.shape());
    const Floats base = values_of(input);
    Floats differences;
    for (size_t i = 0; i < base.size(); ++i) {
      const auto at = [&](float value) {
        Arrays moved = inputs;
        moved.at(static_cast<size_t>(argnums[a])) =
            to_array(with_value(base, i, value), input.shape());
        return double{loss(moved).item<float>()};
      };
      differences.push_back(
          static_cast<float>((at(base[i] + kStep) - at(base[i] - kStep)) / (2.0 * kStep)));
    }
    SCOPED_TRACE("gradient of input " + std::to_string(argnums[a]));
    expect_close(gradients[a], differences, tolerance, tolerance);
  }
}

}  // namespace mere::test
