// Rows of a table by number: token embeddings.
//
//   const Array x = embedding(ids, table);   // ids [B, L], table [count, width] -> [B, L, width]
#pragma once

#include <mlx/mlx.h>

#include "kernels/linear.h"

namespace mere {

// ids [...] int32 with any strides; table a matrix [count, width], dense or quantised. Result
// [..., width] float32. Only the chosen rows of the table are read, unless its rows are not dense:
// then it is copied whole.
//
// An id outside 0 <= id < count ends the evaluation with std::runtime_error; on a GPU it gives a
// row of NaN. Gradients reach a dense table. std::invalid_argument on a shape or type mismatch.
mlx::core::array embedding(const mlx::core::array& ids, const LinearWeight& table);

}  // namespace mere
