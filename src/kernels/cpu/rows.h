// Rows of a strided array whose last axis is dense.
#pragma once

#include <mlx/mlx.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace mere {

// Maps a row number (row-major over all axes but the last) to its element offset.
class RowIndex {
 public:
  explicit RowIndex(const mlx::core::array& a) {
    const int last = static_cast<int>(a.ndim()) - 1;
    if (a.shape(last) > 1 && a.strides(last) != 1) {
      throw std::invalid_argument("kernel input needs a dense last axis");
    }
    width_ = a.shape(last);
    for (int axis = 0; axis < last; ++axis) {
      dims_.push_back(a.shape(axis));
      strides_.push_back(a.strides(axis));
      count_ *= a.shape(axis);
    }
  }

  int64_t count() const { return count_; }
  int64_t width() const { return width_; }

  int64_t offset(int64_t row) const {
    int64_t offset = 0;
    for (size_t axis = dims_.size(); axis-- > 0;) {
      offset += row % dims_[axis] * strides_[axis];
      row /= dims_[axis];
    }
    return offset;
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<int64_t> strides_;
  int64_t count_ = 1;
  int64_t width_ = 0;
};

}  // namespace mere
