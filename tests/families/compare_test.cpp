#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "families/image_family.h"

namespace mere {
namespace {

TEST(CompareTensors, PassesWithinAbsoluteAndRelativeTolerance) {
  EXPECT_TRUE(compare_tensors("x", {{2}, {0.00009, 100.009}}, {{2}, {0, 100}}, 1e-4).passed);
  EXPECT_FALSE(compare_tensors("x", {{1}, {0.00011}}, {{1}, {0}}, 1e-4).passed);
  EXPECT_FALSE(compare_tensors("x", {{1}, {100.011}}, {{1}, {100}}, 1e-4).passed);
}

TEST(CompareTensors, ReportsTheErrors) {
  const TensorCheck check = compare_tensors("x", {{2}, {3, 4}}, {{2}, {3, 5}}, 0);
  EXPECT_DOUBLE_EQ(check.max_abs, 1);
  EXPECT_NEAR(check.rel_l2, 1 / std::sqrt(34.0), 1e-12);
  EXPECT_FALSE(check.passed);
}

TEST(CompareTensors, NanAndShapeFail) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(compare_tensors("x", {{1}, {nan}}, {{1}, {0}}, 1).passed);
  EXPECT_FALSE(compare_tensors("x", {{1}, {0}}, {{1}, {nan}}, 1).passed);
  EXPECT_FALSE(compare_tensors("x", {{2, 1}, {0, 0}}, {{1, 2}, {0, 0}}, 1).passed);
}

}  // namespace
}  // namespace mere
