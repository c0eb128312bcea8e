#include "kernels/embedding.h"

#include <stdexcept>

#include "arrays.h"
#include "quantized.h"

namespace mere::test {
namespace {

mx::array ids_of(const std::vector<int32_t>& ids, const mx::Shape& shape) {
  return mx::array(ids.data(), shape, mx::int32);
}

const std::vector<int32_t> kIds = {3, 0, 10, 3, 7, 10};

Floats want_of(const Floats& table, const std::vector<int32_t>& ids, int width) {
  Floats want;
  for (const int32_t id : ids) {
    want.insert(want.end(), table.begin() + id * width, table.begin() + (id + 1) * width);
  }
  return want;
}

TEST(Embedding, GathersRowsOfEveryType) {
  for (const int width : {1, 7, 32, 1001}) {
    for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
      const mx::array table = mx::astype(random_array({11, width}, 460), type);
      const mx::array y = embedding(ids_of(kIds, {2, 3}), dense_weight(table));
      EXPECT_EQ(y.shape(), (mx::Shape{2, 3, width}));
      EXPECT_EQ(y.dtype(), mx::float32);
      EXPECT_EQ(values_of(y), want_of(values_of(table), kIds, width));
    }
  }
}

TEST(Embedding, GathersQuantizedRows) {
  for (const int bits : kBitWidths) {
    for (const int group_size : kGroups) {
      for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
        SCOPED_TRACE(std::to_string(bits) + " bits, groups of " + std::to_string(group_size));
        LinearWeight table = random_quantized(11, 256, bits, group_size, type);
        const Floats want = want_of(dequantized(table), kIds, 256);
        expect_close(embedding(ids_of(kIds, {6}), table), want, 1e-6, 1e-6);
        table.weight = inside_wider(table.weight);
        table.scales = stored_swapped(*table.scales, 0, 1);
        expect_close(embedding(ids_of(kIds, {6}), table), want, 1e-6, 1e-6);
      }
    }
  }
}

TEST(Embedding, ReadsEveryView) {
  const mx::array ids = ids_of(kIds, {2, 3});
  for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
    const mx::array table = mx::astype(random_array({11, 37}, 461), type);
    const Floats want = want_of(values_of(table), kIds, 37);
    for (const mx::array& view : {inside_wider(table), stored_swapped(table, 0, 1),
                                  every_other(table), stored_backwards(table, 0)}) {
      EXPECT_EQ(values_of(embedding(ids, dense_weight(view))), want);
    }
    EXPECT_EQ(values_of(embedding(stored_swapped(ids, 0, 1), dense_weight(table))), want);
    EXPECT_EQ(values_of(embedding(stored_backwards(ids, 1), dense_weight(table))), want);
  }
}

TEST(Embedding, TakesNoIdsAndOne) {
  const LinearWeight table = dense_weight(random_array({4, 5}, 462));
  const mx::array none = embedding(mx::zeros({2, 0}, mx::int32), table);
  EXPECT_EQ(none.shape(), (mx::Shape{2, 0, 5}));
  EXPECT_EQ(values_of(none).size(), 0U);
  EXPECT_EQ(embedding(mx::array(3), table).shape(), mx::Shape{5});
  EXPECT_EQ(values_of(embedding(mx::array(3), table)), want_of(values_of(table.weight), {3}, 5));
}

TEST(Embedding, AnIdOutsideEndsTheEvaluation) {
  const LinearWeight dense = dense_weight(random_array({11, 64}, 463));
  const LinearWeight quantized = random_quantized(11, 64, 4, 32, mx::bfloat16);
  for (const LinearWeight& table : {dense, quantized}) {
    for (const int32_t id : {-1, 11, 1 << 30, INT32_MIN, INT32_MAX}) {
      mx::array y = embedding(ids_of({0, 1, id}, {3}), table);
      EXPECT_THROW(mx::eval(y), std::runtime_error) << id;
    }
  }
  // The next one works.
  EXPECT_EQ(values_of(embedding(mx::array(3), dense)), want_of(values_of(dense.weight), {3}, 64));
}

// What a GPU runs.
TEST(Embedding, FallbackReadsNothingOutside) {
  const LinearWeight table = dense_weight(random_array({4, 3}, 464));
  const auto mapped = mx::vmap([&](const Arrays& in) { return Arrays{embedding(in[0], table)}; },
                               std::vector<int>{0}, std::vector<int>{0});
  const mx::array ids = ids_of({2, 4, -1, INT32_MAX}, {1, 4});
  const Floats y = values_of(mapped({ids}).at(0));
  const Floats row = want_of(values_of(table.weight), {2}, 3);
  EXPECT_EQ(Floats(y.begin(), y.begin() + 3), row);
  for (size_t i = 3; i < y.size(); ++i) EXPECT_TRUE(std::isnan(y[i]));
  // Nor does the gradient write there.
  const auto loss = [](const mx::array& t) {
    return mx::sum(embedding(ids_of({2, 4, -1}, {3}), dense_weight(t)));
  };
  const auto gradient = mx::vjp(
      [](const Arrays& in) {
        return Arrays{embedding(ids_of({2, 4, -1}, {3}), dense_weight(in[0]))};
      },
      {table.weight}, {mx::ones({3, 3})});
  EXPECT_EQ(values_of(gradient.second.at(0)), (Floats{0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0}));
  EXPECT_THROW(values_of(loss(table.weight)), std::runtime_error);
}

TEST(Embedding, FallbackAgreesForEveryWidth) {
  const mx::array ids = ids_of(kIds, {6});
  for (const int bits : kBitWidths) {
    const LinearWeight table = random_quantized(11, 64, bits, 32, mx::bfloat16);
    expect_fallback_agrees([&](const Arrays& in) { return embedding(in[0], table); }, {ids});
  }
}

TEST(Embedding, GradientReachesTheTable) {
  const mx::array ids = ids_of({1, 3, 1}, {3});
  const auto op = [&](const Arrays& in) { return embedding(ids, dense_weight(in[0])); };
  expect_gradients(op, {random_array({4, 5}, 465)}, {0});
}

TEST(Embedding, KeepsNanAndInf) {
  const Floats table = random_floats(4 * 5, 466);
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const mx::Dtype type : {mx::float32, mx::bfloat16, mx::float16}) {
      const auto stored = mx::astype(to_array(with_value(table, 7, bad), {4, 5}), type);
      EXPECT_FALSE(all_finite(embedding(mx::array(1), dense_weight(stored))));
      EXPECT_TRUE(all_finite(embedding(mx::array(2), dense_weight(stored))));
    }
  }
}

TEST(Embedding, IsDeterministic) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 300; ++i) ids.push_back(i * 7 % 100);
  const LinearWeight table = random_quantized(100, 256, 4, 64, mx::bfloat16);
  const mx::array x = ids_of(ids, {300});
  const Floats y = values_of(embedding(x, table));
  EXPECT_EQ(values_of(embedding(x, table)), y);
  expect_close(y, want_of(dequantized(table), ids, 256), 1e-6, 1e-6);
}

TEST(Embedding, RefusesMismatches) {
  const LinearWeight table = dense_weight(mx::zeros({4, 5}));
  for (const mx::Dtype type : {mx::float32, mx::uint32, mx::int64}) {
    EXPECT_THROW(embedding(mx::zeros({3}, type), table), std::invalid_argument);
  }
  const mx::array ids = mx::zeros({3}, mx::int32);
  EXPECT_THROW(embedding(ids, dense_weight(mx::zeros({0, 5}))), std::invalid_argument);
  EXPECT_THROW(embedding(ids, dense_weight(mx::zeros({4, 5}, mx::int32))), std::invalid_argument);
  LinearWeight bad = random_quantized(4, 64, 4, 32, mx::bfloat16);
  bad.scales.reset();
  EXPECT_THROW(embedding(ids, bad), std::invalid_argument);
  bad = table;
  bad.out = 400;
  EXPECT_THROW(embedding(ids, bad), std::invalid_argument);
}

}  // namespace
}  // namespace mere::test
