#include "tensor/tensor.h"

#include <cstring>
#include <mutex>

#include "core/error.h"
#include "kernels/cpu/parallel.h"

namespace mere {
namespace {

template <typename T>
Array copy_in(std::span<const T> values, const mx::Shape& shape, mx::Dtype dtype) {
  size_t elements = 1;
  for (const auto dim : shape) elements *= static_cast<size_t>(dim);
  if (elements != values.size()) {
    throw InternalError{{"shape_mismatch", "", "array_from: values do not fill the shape", ""}};
  }
  return Array(values.data(), shape, dtype);
}

template <typename T>
std::vector<T> copy_out(const Array& a, mx::Dtype dtype) {
  const Array dense = mx::contiguous(mx::astype(a, dtype));
  mx::eval(dense);
  const T* data = dense.data<T>();
  return std::vector<T>(data, data + dense.size());
}

}  // namespace

void initialize_engine() {
  if (const char* name = cpu::wrong_environment()) {
    throw UsageError{
        {"environment", name, std::string(name) + " holds a value that it may not",
         "MERERUN_THREADS is a number above 0, MERERUN_CPU_ISA is avx2, avx512 or unset"}};
  }
  static std::once_flag once;
  std::call_once(once, [] {
    // MLX fuses graphs on the CPU by running a C++ compiler on the user's machine.
    mx::disable_compile();
    // A larger cache only raises the peak (docs/perf/log.md).
    mx::set_cache_limit(size_t{16} << 20);
  });
}

Array array_from(std::span<const float> values, const mx::Shape& shape) {
  return copy_in(values, shape, mx::float32);
}

Array array_from(std::span<const int32_t> values, const mx::Shape& shape) {
  return copy_in(values, shape, mx::int32);
}

std::vector<float> to_floats(const Array& a) { return copy_out<float>(a, mx::float32); }

std::vector<double> to_doubles(const Array& a) {
  // MLX has float64 on the CPU only, and int64 values of cases fit a double.
  const Array dense = mx::contiguous(a);
  mx::eval(dense);
  if (dense.dtype() == mx::int64) {
    const int64_t* data = dense.data<int64_t>();
    return std::vector<double>(data, data + dense.size());
  }
  if (dense.dtype() == mx::int32) {
    const int32_t* data = dense.data<int32_t>();
    return std::vector<double>(data, data + dense.size());
  }
  const std::vector<float> floats = to_floats(dense);
  return std::vector<double>(floats.begin(), floats.end());
}

}  // namespace mere
