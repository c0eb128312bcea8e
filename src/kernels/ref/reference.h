// Plain references of every kernel: the definition, in the shortest loops, with double sums.
// Tests compare each implementation with these; nothing at run time uses them.
#pragma once

#include <cstdint>
#include <vector>

namespace mere::ref {

using Floats = std::vector<float>;

// x [rows, in], w [out, in] -> [rows, out]
Floats linear(const Floats& x, const Floats& w, const Floats& bias, int64_t rows, int64_t in,
              int64_t out);
// One MLX affine matrix [rows, columns] to floats.
Floats dequantize(const std::vector<uint32_t>& codes, const Floats& scales, const Floats& biases,
                  int64_t rows, int64_t columns, int bits, int64_t group_size);
// The inverse for one matrix [rows, columns]: what mlx::core::quantize computes, in its arithmetic.
struct Affine {
  std::vector<uint32_t> codes;  // one word per value, not packed
  Floats scales, biases;
};
Affine quantize(const Floats& x, int bits, int64_t group_size);
// q [B, H, Lq, D], k, v [B, Hkv, Lk, D] -> [B, H, Lq, D]; valid has B entries or none.
Floats attention(const Floats& q, const Floats& k, const Floats& v, int64_t batch, int64_t heads,
                 int64_t kv_heads, int64_t queries, int64_t keys, int64_t depth, float scale,
                 bool causal, const std::vector<int32_t>& valid);
Floats rms_norm(const Floats& x, const Floats& weight, float eps);
// scale and shift for one batch row of `tokens` rows.
Floats layer_norm_modulated(const Floats& x, const Floats& scale, const Floats& shift,
                            int64_t tokens, int64_t width, float eps);
// x [B, pixels, C]
Floats group_norm(const Floats& x, const Floats& weight, const Floats& bias, int64_t batch,
                  int64_t channels, int64_t groups, float eps, bool silu);
Floats softmax(const Floats& x, int64_t width);
// Indices of the k greatest of each row: NaN first, then falling, equal ones by index.
std::vector<int32_t> top_k(const Floats& x, int64_t width, int64_t k);
Floats silu(const Floats& x);
Floats gelu(const Floats& x, bool tanh);
Floats swiglu(const Floats& x, int64_t half);
// x [B, H, W, Cin], w [Cout, kh, kw, Cin]; pads top, bottom, left, right.
Floats conv2d(const Floats& x, const Floats& w, const Floats& bias, int64_t batch, int64_t height,
              int64_t width, int64_t in_channels, int64_t out_channels, int64_t kernel,
              int64_t stride, const std::vector<int64_t>& pads);
// x [B, D, H, W, Cin], w [Cout, kd, kh, kw, Cin], each by its sizes; strides of depth and plane;
// pads front, back, top, bottom, left, right.
Floats conv3d(const Floats& x, const std::vector<int64_t>& x_shape, const Floats& w,
              const std::vector<int64_t>& w_shape, const Floats& bias, int64_t depth_stride,
              int64_t plane_stride, const std::vector<int64_t>& pads);
// x [B, H, W, C] -> [B, H / factor, W / factor, C factor^2], channel slowest.
Floats pixel_unshuffle(const Floats& x, int64_t batch, int64_t height, int64_t width,
                       int64_t channels, int64_t factor);
// x [B, H, L, D], cos and sin [L, D/2]
Floats rope(const Floats& x, const Floats& cos, const Floats& sin, int64_t tokens, int64_t depth,
            bool adjacent);

}  // namespace mere::ref
