#include "kernels/cpu/rows.h"

#include "arrays.h"

namespace mere::test {
namespace {

void expect_rows(const mx::array& view) {
  const Rows<float> rows(view);
  Floats gathered;
  for (int64_t row = 0; row < rows.count(); ++row) {
    gathered.insert(gathered.end(), rows.row(row), rows.row(row) + rows.width());
  }
  const Floats want = values_of(view);
  EXPECT_EQ(gathered, want);
  EXPECT_EQ(dense_copy<float>(view), want);
  const DenseData<float> dense(view);
  EXPECT_EQ(Floats(dense.data(), dense.data() + view.size()), want);
}

TEST(Rows, FindEveryRowOfEveryView) {
  const mx::array a = random_array({2, 3, 4, 5}, 400);
  for (int i = 0; i < 4; ++i) {
    for (int j = i; j < 4; ++j) expect_rows(stored_swapped(a, i, j));
    expect_rows(stored_backwards(a, i));
  }
  expect_rows(inside_wider(a));
  expect_rows(every_other(a));
  expect_rows(inside_wider(stored_swapped(a, 1, 2)));
  mx::array repeated = mx::broadcast_to(random_array({2, 1, 1, 5}, 401), {2, 3, 4, 5});
  mx::array column = mx::broadcast_to(random_array({2, 3, 4, 1}, 402), {2, 3, 4, 5});
  mx::array scalar(3.0F);
  mx::eval(repeated, column, scalar);
  expect_rows(repeated);
  expect_rows(column);
  expect_rows(scalar);
}

TEST(Rows, SpacingIsThatOfAMatrix) {
  mx::array a = random_array({2, 3, 5}, 403);
  mx::eval(a);
  EXPECT_EQ(Rows<float>(a).spacing(), 5);
  EXPECT_EQ(Rows<float>(inside_wider(a)).spacing(), 12);
  EXPECT_EQ(Rows<float>(every_other(a)).spacing(), 5);  // a copy
  EXPECT_EQ(Rows<float>(stored_swapped(a, 0, 1)).spacing(), std::nullopt);
  EXPECT_EQ(Rows<float>(stored_backwards(mx::reshape(a, {6, 5}), 0)).spacing(), std::nullopt);
  mx::array repeated = mx::broadcast_to(random_array({1, 5}, 404), {3, 5});
  mx::eval(repeated);
  EXPECT_EQ(Rows<float>(repeated).spacing(), std::nullopt);
}

}  // namespace
}  // namespace mere::test
