// Arrays put side by side.
#pragma once

#include <mlx/mlx.h>
#include <vector>

namespace mere {

// float32 arrays that differ only in `axis` (negative: from the end), joined along it. Views are
// read in place. std::invalid_argument on a shape or type mismatch.
mlx::core::array concat(const std::vector<mlx::core::array>& parts, int axis);

}  // namespace mere
