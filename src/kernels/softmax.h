// Softmax over the last axis.
#pragma once

#include <mlx/mlx.h>

namespace mere {

// e^(x_i - max) / sum_j e^(x_j - max). x [..., n] float32 with any strides, result of that shape.
// -Inf is a weight of zero, and a row of nothing else gives zeros, as attention gives to a query
// that sees no key. A row that holds a NaN or +Inf is NaN throughout.
// std::invalid_argument when x is a scalar or not float32.
// (Named so that calls do not find mlx::core::softmax as well.)
mlx::core::array softmax_rows(const mlx::core::array& x);

}  // namespace mere
