#include "kernels/linear.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/concat.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/bf16_panels.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu_op.h"
#include "kernels/precision.h"

namespace mere {
namespace {

namespace mx = mlx::core;

// An array as a matrix of equally spaced rows; copied when it is not stored so.
template <class T>
class Matrix {
 public:
  explicit Matrix(const mx::array& a) : rows_(a), stride_(rows_.spacing().value_or(0)) {
    if (stride_ != 0) return;
    copy_ = dense_copy<T>(a);
    stride_ = rows_.width();
  }

  const T* data() const { return copy_.empty() ? rows_.row(0) : copy_.data(); }
  int64_t stride() const { return stride_; }

 private:
  Rows<T> rows_;
  std::vector<T> copy_;
  int64_t stride_;
};

// The same of float32, f16 or bf16.
class FloatingMatrix {
 public:
  explicit FloatingMatrix(const mx::array& a) {
    if (a.dtype() == mx::float32) {
      floats_.emplace(a);
      stored_ = {cpu::Stored::kFloat32, floats_->data(), floats_->stride()};
    } else {
      halves_.emplace(a);
      const bool bf16 = a.dtype() == mx::bfloat16;
      stored_ = {bf16 ? cpu::Stored::kBFloat16 : cpu::Stored::kFloat16, halves_->data(),
                 halves_->stride()};
    }
  }

  const cpu::StoredMatrix& stored() const { return stored_; }

 private:
  std::optional<Matrix<float>> floats_;
  std::optional<Matrix<uint16_t>> halves_;
  cpu::StoredMatrix stored_{};
};

// The rows of x, whose columns lie in one or several arrays.
class Input {
 public:
  void add(const mx::array& x, bool swiglu) {
    parts_.push_back({Matrix<float>(x), width_, x.shape(-1) / (swiglu ? 2 : 1), swiglu});
    width_ += parts_.back().width;
  }

  struct Block {
    const float* data;
    int64_t stride;
  };

  // Rows [row, row + count) of columns [k, k + size): in place when they lie in one array as they
  // are, else in memory of this thread until it asks again.
  Block block(int64_t row, int64_t count, int64_t k, int64_t size) const {
    for (const Part& part : parts_) {
      if (!part.swiglu && k >= part.first && k + size <= part.first + part.width) {
        return {part.matrix.data() + row * part.matrix.stride() + k - part.first,
                part.matrix.stride()};
      }
    }
    static thread_local cpu::Scratch scratch;
    auto* const to =
        reinterpret_cast<float*>(scratch.get(count * size * static_cast<int64_t>(sizeof(float))));
    for (const Part& part : parts_) {
      const int64_t begin = std::max(k, part.first);
      const int64_t end = std::min(k + size, part.first + part.width);
      for (int64_t i = 0; i < count && begin < end; ++i) {
        const float* from =
            part.matrix.data() + (row + i) * part.matrix.stride() + begin - part.first;
        float* out = to + i * size + begin - k;
        if (part.swiglu) {
          cpu::swiglu_row(from, from + part.width, end - begin, out);
        } else {
          std::copy(from, from + (end - begin), out);
        }
      }
    }
    return {to, size};
  }

 private:
  struct Part {
    Matrix<float> matrix;
    int64_t first, width;  // of the columns of x
    bool swiglu;
  };

  std::vector<Part> parts_;
  int64_t width_ = 0;
};

// y [rows, out] = x W^T, with what is added to every finished block.
struct Product {
  const Input& x;
  int64_t rows;
  int64_t out, in;
  float* y;
  decltype(cpu::Product::finish) finish;

  cpu::Product blocked(cpu::Panels panels, cpu::Product::Pack pack_a, cpu::Product::Pack pack_b,
                       int64_t group = 0) const {
    return {.m = rows,
            .n = out,
            .k = in,
            .panels = panels,
            .group = group,
            .pack_a = std::move(pack_a),
            .pack_b = std::move(pack_b),
            .finish = finish};
  }

  cpu::Product::Pack pack_x() const {
    return [this, lanes = cpu::gemm_tile().rows](int64_t row, int64_t count, int64_t k,
                                                 int64_t size, std::byte* out) {
      const auto [from, stride] = x.block(row, count, k, size);
      cpu::pack_rows(cpu::Stored::kFloat32, from, stride, count, size, lanes,
                     reinterpret_cast<float*>(out));
    };
  }

  cpu::Product::Pack pack_x_bf16() const {
    return [this](int64_t row, int64_t count, int64_t k, int64_t size, std::byte* out) {
      const auto [from, stride] = x.block(row, count, k, size);
      cpu::pack_a_bf16(from, stride, count, size, out);
    };
  }

  // `sums` [rows, in / group], when given, receives the sums of x.
  cpu::Product::Pack pack_x_int16(int64_t group, float norm, float* sums = nullptr) const {
    return [=, this, lanes = cpu::gemm_tile().rows](int64_t row, int64_t count, int64_t k,
                                                    int64_t size, std::byte* out) {
      const int64_t groups = in / group;
      const auto [from, stride] = x.block(row, count, k, size);
      cpu::pack_rows_int16(cpu::Stored::kFloat32, from, stride, count, size, group, lanes, norm,
                           false, out, sums == nullptr ? nullptr : sums + row * groups + k / group,
                           groups);
    };
  }
};

void multiply_dense(const Product& p, const cpu::StoredMatrix& w) {
  constexpr int64_t kGroup = 64;
  const int64_t lanes = cpu::gemm_tile().columns;
  const bool int16 = precision() == Precision::kAuto && w.type == cpu::Stored::kBFloat16 &&
                     p.in % kGroup == 0 && cpu::has_int16_gemm();
  const auto pack_w = [&](int64_t column, int64_t count, int64_t k, int64_t size, std::byte* out) {
    const void* from = w.at(column, k);
    if (int16) {
      cpu::pack_rows_int16(w.type, from, w.stride, count, size, kGroup, lanes, cpu::kNormB, true,
                           out, nullptr, 0);
    } else {
      cpu::pack_rows(w.type, from, w.stride, count, size, lanes, reinterpret_cast<float*>(out));
    }
  };
  const auto blocked =
      int16 ? p.blocked(cpu::Panels::kInt16, p.pack_x_int16(kGroup, cpu::kNormA), pack_w, kGroup)
            : p.blocked(cpu::Panels::kFloat32, p.pack_x(), pack_w);
  cpu::multiply(blocked, p.y, p.out);
}

// Widens to float32 a panel at a time.
void multiply_affine_exact(const Product& p, const cpu::AffineMatrix& w) {
  const int64_t lanes = cpu::gemm_tile().columns;
  cpu::Product blocked =
      p.blocked(cpu::Panels::kFloat32, p.pack_x(),
                [&](int64_t column, int64_t count, int64_t k, int64_t size, std::byte* out) {
                  std::vector<float> wide(static_cast<size_t>(lanes * size));
                  auto* to = reinterpret_cast<float*>(out);
                  for (int64_t j = 0; j < count; j += lanes, to += lanes * size) {
                    const int64_t rows = std::min(lanes, count - j);
                    for (int64_t r = 0; r < rows; ++r) {
                      cpu::affine_row_to_f32(w, column + j + r, k, size, wide.data() + r * size);
                    }
                    cpu::pack_rows(cpu::Stored::kFloat32, wide.data(), size, rows, size, lanes, to);
                  }
                });
  blocked.k_unit = w.group;
  cpu::multiply(blocked, p.y, p.out);
}

// value = code * scale + bias: the codes go through int16 products, exact but for the rounding of
// x, and the biases through a float32 product with the sums of the groups of x.
void multiply_affine_int16(const Product& p, const cpu::AffineMatrix& w) {
  const int64_t lanes = cpu::gemm_tile().columns;
  const int64_t groups = p.in / w.group;
  std::vector<float> sums(static_cast<size_t>(p.rows * groups));
  // Codes are at most 255, so the largest x alone limits its integers.
  constexpr float kAnyNorm = 1e9F;
  cpu::Product codes = p.blocked(
      cpu::Panels::kInt16, p.pack_x_int16(w.group, kAnyNorm, sums.data()),
      [&](int64_t column, int64_t count, int64_t k, int64_t size, std::byte* out) {
        std::vector<int16_t> values(static_cast<size_t>(lanes * size));
        std::vector<float> scales(static_cast<size_t>(lanes * size / w.group));
        for (int64_t j = 0; j < count; j += lanes) {
          const int64_t rows = std::min(lanes, count - j);
          for (int64_t r = 0; r < rows; ++r) {
            cpu::affine_row_to_i16(w, column + j + r, k, size, values.data() + r * size,
                                   scales.data() + r * (size / w.group));
          }
          cpu::pack_int16(values.data(), scales.data(), rows, size, w.group, lanes, out);
          out += cpu::int16_panel_bytes(size, w.group, lanes);
        }
      },
      w.group);
  codes.finish = nullptr;
  cpu::multiply(codes, p.y, p.out);

  const int64_t row_lanes = cpu::gemm_tile().rows;
  const cpu::Product offsets{
      .m = p.rows,
      .n = p.out,
      .k = groups,
      .accumulate = true,
      .pack_a =
          [&](int64_t row, int64_t count, int64_t k, int64_t size, std::byte* out) {
            cpu::pack_rows(cpu::Stored::kFloat32, sums.data() + row * groups + k, groups, count,
                           size, row_lanes, reinterpret_cast<float*>(out));
          },
      .pack_b =
          [&](int64_t column, int64_t count, int64_t k, int64_t size, std::byte* out) {
            std::vector<float> biases(static_cast<size_t>(count * size));
            for (int64_t j = 0; j < count; ++j) {
              cpu::affine_row_offsets(w, column + j, k, size, biases.data() + j * size);
            }
            cpu::pack_rows(cpu::Stored::kFloat32, biases.data(), size, count, size, lanes,
                           reinterpret_cast<float*>(out));
          },
      .finish = p.finish};
  cpu::multiply(offsets, p.y, p.out);
}

void multiply_dense_bf16(const Product& p, const cpu::StoredMatrix& w) {
  cpu::multiply(
      p.blocked(cpu::Panels::kBf16, p.pack_x_bf16(),
                [&](int64_t column, int64_t count, int64_t k, int64_t size, std::byte* out) {
                  cpu::pack_b_bf16(w.type, w.at(column, k), w.stride, count, size, out);
                }),
      p.y, p.out);
}

void multiply_affine_bf16(const Product& p, const cpu::AffineMatrix& w) {
  cpu::Product blocked =
      p.blocked(cpu::Panels::kBf16, p.pack_x_bf16(),
                [&](int64_t column, int64_t count, int64_t k, int64_t size, std::byte* out) {
                  std::vector<float> wide(static_cast<size_t>(count * size));
                  for (int64_t r = 0; r < count; ++r) {
                    cpu::affine_row_to_f32(w, column + r, k, size, wide.data() + r * size);
                  }
                  cpu::pack_b_bf16(cpu::Stored::kFloat32, wide.data(), size, count, size, out);
                });
  blocked.k_unit = w.group;
  cpu::multiply(blocked, p.y, p.out);
}

void multiply_few(const Product& p, const std::function<void(const cpu::FewRows&)>& run) {
  const auto [x, stride] = p.x.block(0, p.rows, 0, p.in);
  run({x, stride, p.rows, p.in, p.out, p.y, p.out});
  if (p.finish) p.finish(0, p.rows, 0, p.out);
}

void multiply_dense_array(const Product& p, const mx::array& weight) {
  const FloatingMatrix w(weight);
  if (p.rows <= cpu::kFewRows) {
    multiply_few(p, [&](const auto& few) { cpu::few_rows_dense(few, w.stored()); });
  } else if (precision() == Precision::kAuto && weight.dtype() == mx::bfloat16 &&
             cpu::has_bf16_panels()) {
    multiply_dense_bf16(p, w.stored());
  } else {
    multiply_dense(p, w.stored());
  }
}

void multiply_affine_arrays(const Product& p, const LinearWeight& w, const mx::array* parts) {
  const Matrix<uint32_t> codes(parts[0]);
  const FloatingMatrix scales(parts[1]);
  const FloatingMatrix biases(parts[2]);
  const cpu::AffineMatrix affine{.bits = w.bits,
                                 .group = w.group_size,
                                 .codes = codes.data(),
                                 .stride = codes.stride(),
                                 .scales = scales.stored(),
                                 .biases = biases.stored()};
  const bool common_group = common_affine_group(w.group_size);
  const bool int16 = precision() == Precision::kAuto && common_group;
  if (p.rows <= cpu::kFewRows && common_group) {
    const auto fixed = int16 ? cpu::FixedPoint::kInt16 : cpu::FixedPoint::kInt30;
    multiply_few(p, [&](const auto& few) { cpu::few_rows_affine(few, affine, fixed); });
  } else if (precision() == Precision::kAuto && cpu::has_bf16_panels()) {
    multiply_affine_bf16(p, affine);
  } else if (int16 && cpu::has_int16_gemm()) {
    multiply_affine_int16(p, affine);
  } else {
    multiply_affine_exact(p, affine);
  }
}

// What linear() is given but for the arrays: these come back as inputs, in this order: the parts of
// x, weight, scales and biases when quantised, bias, residual and gate when there are any.
struct Description {
  std::vector<bool> swiglu;  // of each part of x
  LinearWeight w;
  bool has_bias;
  bool has_gate;
  Epilogue::Function function;

  size_t weight_at() const { return swiglu.size(); }
  size_t bias_at() const { return weight_at() + (w.quantized() ? 3 : 1); }
  size_t residual_at() const { return bias_at() + (has_bias ? 1 : 0); }
};

using RowFunction = void (*)(const float* x, int64_t width, float* out);

RowFunction row_function(Epilogue::Function function) {
  switch (function) {
    case Epilogue::kNone:
      return nullptr;
    case Epilogue::kSilu:
      return &cpu::silu_row;
    case Epilogue::kGeluErf:
      return &cpu::gelu_erf_row;
    case Epilogue::kGeluTanh:
      return &cpu::gelu_tanh_row;
  }
  return nullptr;
}

// Turns a block of the product into a block of the result, row by row.
class Finish {
 public:
  Finish(const std::vector<mx::array>& in, const Description& d, int64_t rows, float* y)
      : function_(row_function(d.function)), out_(d.w.out), y_(y) {
    if (d.has_bias) bias_.emplace(in[d.bias_at()]);
    if (!d.has_gate) return;
    residual_.emplace(in[d.residual_at()]);
    gate_.emplace(in[d.residual_at() + 1]);
    rows_per_gate_ = rows / gate_->count();
  }

  bool needed() const { return bias_ || function_ != nullptr || gate_; }

  void operator()(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    for (int64_t i = row; i < row + rows; ++i) {
      float* y = y_ + i * out_ + column;
      if (bias_) cpu::add_row(bias_->data() + column, columns, y);
      if (function_ != nullptr) function_(y, columns, y);
      if (!gate_) continue;
      cpu::gated_residual_row(residual_->row(i) + column, gate_->row(i / rows_per_gate_) + column,
                              y, columns, y);
    }
  }

 private:
  RowFunction function_;
  int64_t out_;
  float* y_;
  int64_t rows_per_gate_ = 1;
  std::optional<DenseData<float>> bias_;
  std::optional<Rows<float>> residual_, gate_;
};

void run_linear(const std::vector<mx::array>& in, const Description& d, mx::array& out) {
  Input x;
  for (size_t i = 0; i < d.swiglu.size(); ++i) x.add(in[i], d.swiglu[i]);
  Product product{.x = x,
                  .rows = static_cast<int64_t>(out.size()) / d.w.out,
                  .out = d.w.out,
                  .in = d.w.in,
                  .y = out.data<float>(),
                  .finish = {}};
  const Finish finish(in, d, product.rows, product.y);
  if (finish.needed()) product.finish = std::cref(finish);
  if (d.w.quantized()) {
    multiply_affine_arrays(product, d.w, &in[d.weight_at()]);
  } else {
    multiply_dense_array(product, in[d.weight_at()]);
  }
}

mx::array dense_matrix(const mx::array* parts, const LinearWeight& w) {
  if (!w.quantized()) return mx::astype(parts[0], mx::float32);
  return mx::dequantize(parts[0], mx::astype(parts[1], mx::float32),
                        mx::astype(parts[2], mx::float32), w.group_size, w.bits);
}

mx::array apply(Epilogue::Function function, const mx::array& y) {
  switch (function) {
    case Epilogue::kNone:
      return y;
    case Epilogue::kSilu:
      return silu(y);
    case Epilogue::kGeluErf:
      return gelu(y, Gelu::kErf);
    case Epilogue::kGeluTanh:
      return gelu(y, Gelu::kTanh);
  }
  return y;
}

// The same value from separate operations.
mx::array compose(const std::vector<mx::array>& in, const Description& d) {
  std::vector<InputPart> parts;
  for (size_t i = 0; i < d.swiglu.size(); ++i) parts.push_back({in[i], d.swiglu[i]});
  mx::array y = mx::matmul(joined(parts), mx::transpose(dense_matrix(&in[d.weight_at()], d.w)));
  if (d.has_bias) y = y + in[d.bias_at()];
  y = apply(d.function, y);
  return d.has_gate ? gated_residual(in[d.residual_at()], in[d.residual_at() + 1], y) : y;
}

void check_epilogue(const Epilogue& epilogue, const mx::Shape& shape) {
  if (!epilogue.residual && !epilogue.gate) return;
  if (!epilogue.residual || !epilogue.gate) {
    throw std::invalid_argument("[linear] residual and gate go together");
  }
  require_gate("linear", *epilogue.residual, *epilogue.gate, shape);
}

void check_input(const std::vector<InputPart>& parts, const LinearWeight& w,
                 const std::optional<mx::array>& bias) {
  int64_t width = 0;
  for (const InputPart& part : parts) {
    require_float32("linear", {part.x});
    const mx::Shape& shape = part.x.shape();
    const mx::Shape& first = parts[0].x.shape();
    if (shape.empty() || shape.size() != first.size() ||
        !std::equal(shape.begin(), shape.end() - 1, first.begin()) ||
        (part.swiglu && shape.back() % 2 != 0)) {
      throw std::invalid_argument("[linear] parts of the input do not match");
    }
    width += part.width();
  }
  if (parts.empty() || width != w.in) {
    throw std::invalid_argument("[linear] input does not match the weight");
  }
  if (!bias) return;
  require_float32("linear", {*bias});
  if (bias->shape() != mx::Shape{static_cast<int>(w.out)}) {
    throw std::invalid_argument("[linear] bias does not match the weight");
  }
}

}  // namespace

bool known_affine_bits(int bits) { return (bits >= 1 && bits <= 6) || bits == 8; }

bool common_affine_group(int size) { return size == 32 || size == 64 || size == 128; }

void require_weight(const char* name, const LinearWeight& w) {
  const auto refuse = [&](const char* why) {
    throw std::invalid_argument("[" + std::string(name) + "] " + why);
  };
  const auto is_matrix = [&](const mx::array& a, int64_t columns) {
    return a.ndim() == 2 && a.shape(0) == w.out && a.shape(1) == columns;
  };
  if (w.out < 1 || w.in < 1) refuse("the weight is empty");
  if (!w.quantized()) {
    if (!is_matrix(w.weight, w.in) || !is_floating(w.weight)) {
      refuse("a dense weight is a floating matrix [out, in]");
    }
    return;
  }
  if (!known_affine_bits(w.bits) || w.group_size < 32 || w.group_size % 32 != 0 ||
      w.in % w.group_size != 0) {
    refuse("unknown quantisation");
  }
  const int64_t groups = w.in / w.group_size;
  if (!w.scales || !w.biases || w.weight.dtype() != mx::uint32 ||
      !is_matrix(w.weight, w.in / 32 * w.bits) || !is_matrix(*w.scales, groups) ||
      !is_matrix(*w.biases, groups) || !is_floating(*w.scales) || !is_floating(*w.biases)) {
    refuse("parts of a quantised weight do not match");
  }
}

LinearWeight dense_weight(mx::array weight) {
  if (weight.ndim() != 2) throw std::invalid_argument("[linear] a weight is a matrix");
  const int64_t out = weight.shape(0);
  const int64_t in = weight.shape(1);
  return {std::move(weight), std::nullopt, std::nullopt, 0, 0, out, in};
}

mx::array joined(const std::vector<InputPart>& parts) {
  std::vector<mx::array> arrays;
  arrays.reserve(parts.size());
  for (const InputPart& part : parts) arrays.push_back(part.swiglu ? swiglu(part.x) : part.x);
  return arrays.size() == 1 ? arrays[0] : concat(arrays, static_cast<int>(arrays[0].ndim()) - 1);
}

mx::array linear(const mx::array& x, const LinearWeight& w, const std::optional<mx::array>& bias,
                 const Epilogue& epilogue) {
  return linear(std::vector<InputPart>{{x}}, w, bias, epilogue);
}

mx::array linear(const std::vector<InputPart>& parts, const LinearWeight& w,
                 const std::optional<mx::array>& bias, const Epilogue& epilogue) {
  require_weight("linear", w);
  check_input(parts, w, bias);
  mx::Shape shape = parts[0].x.shape();
  shape.back() = static_cast<int>(w.out);
  check_epilogue(epilogue, shape);
  std::vector<mx::array> inputs;
  std::vector<bool> swiglu;
  for (const InputPart& part : parts) {
    inputs.push_back(part.x);
    swiglu.push_back(part.swiglu);
  }
  inputs.push_back(w.weight);
  if (w.quantized()) {
    inputs.push_back(*w.scales);
    inputs.push_back(*w.biases);
  }
  if (bias) inputs.push_back(*bias);
  if (epilogue.gate) {
    inputs.push_back(*epilogue.residual);
    inputs.push_back(*epilogue.gate);
  }
  const Description d{
      std::move(swiglu),
      {mx::array(0.0F), std::nullopt, std::nullopt, w.bits, w.group_size, w.out, w.in},
      bias.has_value(),
      epilogue.gate.has_value(),
      epilogue.function};
  return cpu_op(
      "linear", shape, std::move(inputs),
      [d](const auto& in, auto& out) { run_linear(in, d, out); },
      [d](const auto& in) { return std::vector{compose(in, d)}; });
}

}  // namespace mere
