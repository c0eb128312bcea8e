#include "kernels/concat.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu_op.h"

namespace mere {
namespace {

namespace mx = mlx::core;

constexpr int64_t kGrainFloats = 65536;  // least work worth a thread

// Copies the rows of one part to where they belong. `before` and `total` count elements of the
// joined axis times all later ones: those of the parts before this one, and of all parts.
void copy_part(const mx::array& part, int axis, int64_t before, int64_t total, float* out) {
  const Rows<float> rows(part);
  int64_t block = 1;  // elements that stay together
  for (int i = axis; i < static_cast<int>(part.ndim()); ++i) block *= part.shape(i);
  const int64_t width = rows.width();
  if (width == 0) return;
  const int64_t grain = 1 + kGrainFloats / width;
  cpu::parallel_for(rows.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * width;
      std::memcpy(out + at / block * total + before + at % block, rows.row(row),
                  static_cast<size_t>(width) * sizeof(float));
    }
  });
}

}  // namespace

mx::array concat(const std::vector<mx::array>& parts, int axis) {
  if (parts.empty()) throw std::invalid_argument("[concat] needs arrays");
  const int ndim = static_cast<int>(parts[0].ndim());
  if (axis < 0) axis += ndim;
  if (axis < 0 || axis >= ndim) throw std::invalid_argument("[concat] no such axis");
  mx::Shape shape = parts[0].shape();
  shape[axis] = 0;
  for (const mx::array& part : parts) {
    require_float32("concat", {part});
    mx::Shape same = part.shape();
    if (static_cast<int>(part.ndim()) == ndim) same[axis] = shape[axis];
    if (same != shape) throw std::invalid_argument("[concat] shapes do not match");
    shape[axis] += part.shape(axis);
  }
  return cpu_op(
      "concat", shape, parts,
      [axis](const auto& in, auto& out) {
        int64_t inner = 1;
        for (int i = axis + 1; i < static_cast<int>(out.ndim()); ++i) inner *= out.shape(i);
        int64_t before = 0;
        for (const mx::array& part : in) {
          if (part.size() == 0) continue;
          copy_part(part, axis, before, out.shape(axis) * inner, out.template data<float>());
          before += part.shape(axis) * inner;
        }
      },
      [axis](const auto& in) { return std::vector{mx::concatenate(in, axis)}; });
}

}  // namespace mere
