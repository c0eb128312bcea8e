// y = residual + gate f(x W^T + bias), the matrix product of every model here.
//
//   Array y = linear(x, weight, bias);   // x [..., in], weight [out, in] -> y [..., out] float32
//   Array z = linear(x, weight, bias, {.function = Epilogue::kSilu});
//
// The weight stays as it is stored: float32, float16, bfloat16, or MLX affine quantised. On the CPU
// it is widened panel by panel into a small buffer that stays in cache (kernels/cpu/gemm.h), so a
// mapped checkpoint is never copied whole. Accumulation is float32. All that follows the product is
// done to each block of it while that is in cache.
#pragma once

#include <cstdint>
#include <mlx/mlx.h>
#include <optional>
#include <vector>

namespace mere {

// A weight matrix [out, in]. Quantised: `weight` holds per row in * bits / 32 uint32 words, codes
// of 1-6 or 8 bits from the low bit up; `scales` and `biases` are [out, in / group_size],
// group_size a multiple of 32; value = code * scale + bias.
struct LinearWeight {
  mlx::core::array weight;
  std::optional<mlx::core::array> scales;
  std::optional<mlx::core::array> biases;
  int bits = 0;        // 0: not quantised
  int group_size = 0;  // columns that share a scale
  int64_t out = 0;
  int64_t in = 0;

  bool quantized() const { return bits != 0; }
};

// Widths of the codes that exist.
bool known_affine_bits(int bits);
// Groups that have kernels of their own and can be made: 32, 64 and 128.
bool common_affine_group(int size);

// std::invalid_argument "[name] ..." unless `weight` is a floating matrix or one whose quantised
// parts fit each other.
void require_weight(const char* name, const LinearWeight& weight);

// A floating matrix [out, in] as a LinearWeight.
LinearWeight dense_weight(mlx::core::array weight);

// What follows a product. `residual` [B, L, out] and `gate` [B, 1, out] or [1, 1, out], both
// float32 and given together, for x [B, L, in].
struct Epilogue {
  enum Function { kNone, kSilu, kGeluErf, kGeluTanh };
  Function function = kNone;
  std::optional<mlx::core::array> residual{};
  std::optional<mlx::core::array> gate{};
};

// Columns of the input of a product. With `swiglu`, x [..., 2 w] holds gate and value side by side,
// and silu(gate) value are the w columns: computed as the product reads them, never stored.
struct InputPart {
  mlx::core::array x;
  bool swiglu = false;

  int64_t width() const { return x.shape(-1) / (swiglu ? 2 : 1); }
};

// The parts side by side as one array [..., in], which the product below does not need.
mlx::core::array joined(const std::vector<InputPart>& parts);

// x [..., in] float32, bias [out] float32 or absent. Result [..., out] float32. Any strides: slices
// of rows or columns of a wider array are read in place.
// std::invalid_argument on a shape or type mismatch: a bug of the model code, not of the user.
mlx::core::array linear(const mlx::core::array& x, const LinearWeight& weight,
                        const std::optional<mlx::core::array>& bias = std::nullopt,
                        const Epilogue& epilogue = {});
// The same of columns that lie in several arrays, whose other axes agree.
mlx::core::array linear(const std::vector<InputPart>& parts, const LinearWeight& weight,
                        const std::optional<mlx::core::array>& bias = std::nullopt,
                        const Epilogue& epilogue = {});

}  // namespace mere
