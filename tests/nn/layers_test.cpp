#include "nn/layers.h"

#include <gtest/gtest.h>
#include <random>

#include "nn/autoencoder_kl_flux2.h"

namespace mere {
namespace {

Weights fixture_transformer() {
  return Weights::open(fs::path(MERE_FIXTURES) / "klein" / "model" / "transformer");
}

Array random_array(const mx::Shape& shape, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  size_t count = 1;
  for (const auto dim : shape) count *= dim;
  std::vector<float> values(count);
  for (float& v : values) v = normal(rng);
  return array_from(values, shape);
}

void expect_near(const Array& a, const Array& b, float tolerance) {
  ASSERT_EQ(a.shape(), b.shape());
  const auto x = to_floats(a);
  const auto y = to_floats(b);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

// An adapter on part of the rows changes these and no others.
TEST(Linear, AdapterOnARangeOfRows) {
  const Weights weights = fixture_transformer();
  Linear layer(weights, "x_embedder", 64, 128);
  const Array x = random_array({2, 3, 128}, 1);
  const Array before = layer(x);
  const LoraDelta delta{random_array({4, 128}, 2), random_array({16, 4}, 3), 0.5F, 24, 16};
  layer.add_adapter(delta);
  const Array after = layer(x);
  const Array change =
      mx::matmul(mx::matmul(x, mx::transpose(delta.a)), mx::transpose(delta.b)) * mx::array(0.5F);
  expect_near(mx::slice(after, {0, 0, 0}, {2, 3, 24}), mx::slice(before, {0, 0, 0}, {2, 3, 24}), 0);
  expect_near(mx::slice(after, {0, 0, 40}, {2, 3, 64}), mx::slice(before, {0, 0, 40}, {2, 3, 64}),
              0);
  expect_near(mx::slice(after, {0, 0, 24}, {2, 3, 40}),
              mx::slice(before, {0, 0, 24}, {2, 3, 40}) + change, 1e-4F);
  layer.clear_adapters();
  expect_near(layer(x), before, 0);
}

TEST(Autoencoder, PackingOrderIsChannelThenRowThenColumn) {
  // Value at (y, x, c) of a 2 x 2 latent with 3 channels says where it came from.
  std::vector<float> values;
  for (int y = 0; y < 2; ++y) {
    for (int x = 0; x < 2; ++x) {
      for (int c = 0; c < 3; ++c) values.push_back(static_cast<float>(100 * c + 10 * y + x));
    }
  }
  const Array latent = array_from(values, {1, 2, 2, 3});
  const Array packed = AutoencoderKlFlux2::patchify(latent);
  EXPECT_EQ(packed.shape(), (mx::Shape{1, 1, 1, 12}));
  const std::vector<float> expected = {0, 1, 10, 11, 100, 101, 110, 111, 200, 201, 210, 211};
  EXPECT_EQ(to_floats(packed), expected);
  EXPECT_EQ(to_floats(AutoencoderKlFlux2::unpatchify(packed)), values);
}

}  // namespace
}  // namespace mere
