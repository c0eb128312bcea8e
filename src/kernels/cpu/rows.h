// Strided arrays as the kernels read them. Any strides are taken: what a kernel cannot read in
// place is copied first, so no kernel has to refuse a view.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mlx/mlx.h>
#include <optional>
#include <vector>

namespace mere {

// The elements of `a` in row-major order.
template <class T>
std::vector<T> dense_copy(const mlx::core::array& a) {
  std::vector<T> copy(a.size());
  const int last = static_cast<int>(a.ndim()) - 1;
  const int64_t width = last < 0 ? 1 : a.shape(last);
  const int64_t step = last < 0 ? 1 : a.strides(last);
  std::vector<int64_t> index(a.ndim(), 0);
  const T* from = a.data<T>();
  for (auto to = copy.begin(); to != copy.end();) {
    for (int64_t i = 0; i < width; ++i) *to++ = from[i * step];
    for (int axis = last - 1; axis >= 0; --axis) {
      from += a.strides(axis);
      if (++index[axis] < a.shape(axis)) break;
      from -= index[axis] * a.strides(axis);
      index[axis] = 0;
    }
  }
  return copy;
}

// All elements of an array in row-major order: its own memory when it is stored so.
template <class T>
class DenseData {
 public:
  explicit DenseData(const mlx::core::array& a) {
    if (!a.flags().row_contiguous) copy_ = dense_copy<T>(a);
    data_ = copy_.empty() ? a.data<T>() : copy_.data();
  }
  DenseData(DenseData&&) noexcept = default;

  const T* data() const { return data_; }

 private:
  std::vector<T> copy_;
  const T* data_ = nullptr;
};

// The rows of an array along its last axis, numbered row-major over the other axes, each dense.
template <class T>
class Rows {
 public:
  explicit Rows(const mlx::core::array& a) {
    const int last = static_cast<int>(a.ndim()) - 1;
    width_ = last < 0 ? 1 : a.shape(last);
    const bool dense = last < 0 || width_ <= 1 || a.strides(last) == 1;
    if (!dense) copy_ = dense_copy<T>(a);
    data_ = dense ? a.data<T>() : copy_.data();
    int64_t dense_stride = width_;
    for (int axis = last - 1; axis >= 0; --axis) {
      add_outer_axis(a.shape(axis), dense ? a.strides(axis) : dense_stride);
      dense_stride *= a.shape(axis);
    }
  }
  Rows(Rows&&) noexcept = default;

  int64_t count() const { return count_; }
  int64_t width() const { return width_; }

  const T* row(int64_t index) const {
    const T* at = data_;
    for (size_t axis = 0; axis + 1 < axes_.size(); ++axis) {
      at += index % axes_[axis].size * axes_[axis].stride;
      index /= axes_[axis].size;
    }
    return axes_.empty() ? at : at + index * axes_.back().stride;
  }

  // Elements from each row to the next when that is one number, not less than the width.
  std::optional<int64_t> spacing() const {
    if (axes_.empty()) return width_;
    if (axes_.size() > 1 || axes_[0].stride < width_) return std::nullopt;
    return axes_[0].stride;
  }

 private:
  struct Axis {
    int64_t size, stride;
  };

  // Axes that continue each other in memory become one: finding a row costs a division per axis.
  void add_outer_axis(int64_t size, int64_t stride) {
    count_ *= size;
    if (size == 1) return;
    if (!axes_.empty() && stride == axes_.back().size * axes_.back().stride) {
      axes_.back().size *= size;
    } else {
      axes_.push_back({size, stride});
    }
  }

  std::vector<T> copy_;
  const T* data_ = nullptr;
  std::vector<Axis> axes_;  // innermost first
  int64_t count_ = 1;
  int64_t width_ = 0;
};

}  // namespace mere
