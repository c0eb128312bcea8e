#include "kernels/ref/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace mere::ref {

Floats linear(const Floats& x, const Floats& w, const Floats& bias, int64_t rows, int64_t in,
              int64_t out) {
  Floats y;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0.0 : bias[o];
      for (int64_t i = 0; i < in; ++i) sum += double{x[r * in + i]} * w[o * in + i];
      y.push_back(static_cast<float>(sum));
    }
  }
  return y;
}

Floats dequantize(const std::vector<uint32_t>& codes, const Floats& scales, const Floats& biases,
                  int64_t rows, int64_t columns, int bits, int64_t group_size) {
  Floats y;
  const int64_t words = columns * bits / 32;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      uint32_t code = 0;
      for (int bit = 0; bit < bits; ++bit) {
        const int64_t at = c * bits + bit;
        code |= (codes[r * words + at / 32] >> (at % 32) & 1U) << bit;
      }
      const int64_t group = r * (columns / group_size) + c / group_size;
      y.push_back(static_cast<float>(code) * scales[group] + biases[group]);
    }
  }
  return y;
}

Affine quantize(const Floats& x, int bits, int64_t group_size) {
  Affine y;
  const auto most_code = static_cast<float>((1 << bits) - 1);
  for (size_t first = 0; first < x.size(); first += group_size) {
    const auto [low, high] = std::minmax_element(x.begin() + first, x.begin() + first + group_size);
    float scale = std::max((*high - *low) / most_code, 1e-7F);
    float bias = *low;
    if (bits > 1) {
      const bool from_low = std::fabs(*low) > std::fabs(*high);
      const float edge = from_low ? *low : *high;
      if (!from_low) scale = -scale;
      const float steps = std::rint(edge / scale);
      bias = steps != 0 ? edge : 0;
      if (steps != 0) scale = edge / steps;
    }
    for (int64_t i = 0; i < group_size; ++i) {
      const float code = std::clamp(std::rint((x[first + i] - bias) / scale), 0.0F, most_code);
      y.codes.push_back(static_cast<uint32_t>(code));
    }
    y.scales.push_back(scale);
    y.biases.push_back(bias);
  }
  return y;
}

Floats attention(const Floats& q, const Floats& k, const Floats& v, int64_t batch, int64_t heads,
                 int64_t kv_heads, int64_t queries, int64_t keys, int64_t depth, float scale,
                 bool causal, const std::vector<int32_t>& valid) {
  Floats y(q.size());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv = (b * kv_heads + h / (heads / kv_heads)) * keys;
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t row = ((b * heads + h) * queries + i) * depth;
        int64_t seen = valid.empty() ? keys : valid[b];
        if (causal) seen = std::min(seen, i + 1);
        std::vector<double> scores;
        for (int64_t j = 0; j < seen; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < depth; ++d) dot += double{q[row + d]} * k[(kv + j) * depth + d];
          scores.push_back(dot * scale);
        }
        if (seen == 0) continue;
        const double top = *std::ranges::max_element(scores);
        double total = 0;
        for (double& s : scores) total += s = std::exp(s - top);
        for (int64_t d = 0; d < depth; ++d) {
          double sum = 0;
          for (int64_t j = 0; j < seen; ++j) sum += scores[j] * v[(kv + j) * depth + d];
          y[row + d] = static_cast<float>(sum / total);
        }
      }
    }
  }
  return y;
}

Floats rms_norm(const Floats& x, const Floats& weight, float eps) {
  Floats y(x.size());
  const size_t width = weight.size();
  for (size_t row = 0; row < x.size(); row += width) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += double{x[row + i]} * x[row + i];
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (size_t i = 0; i < width; ++i) {
      y[row + i] = static_cast<float>(x[row + i] * factor * weight[i]);
    }
  }
  return y;
}

Floats layer_norm_modulated(const Floats& x, const Floats& scale, const Floats& shift,
                            int64_t tokens, int64_t width, float eps) {
  Floats y(x.size());
  const auto n = static_cast<double>(width);
  for (size_t row = 0; row * width < x.size(); ++row) {
    const float* from = x.data() + row * width;
    double mean = 0;
    double variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += from[i] / n;
    for (int64_t i = 0; i < width; ++i) variance += (from[i] - mean) * (from[i] - mean) / n;
    const int64_t batch = scale.size() == static_cast<size_t>(width) ? 0 : row / tokens;
    for (int64_t i = 0; i < width; ++i) {
      const double normal = (from[i] - mean) / std::sqrt(variance + eps);
      y[row * width + i] =
          static_cast<float>(normal * (1.0 + scale[batch * width + i]) + shift[batch * width + i]);
    }
  }
  return y;
}

Floats group_norm(const Floats& x, const Floats& weight, const Floats& bias, int64_t batch,
                  int64_t channels, int64_t groups, float eps, bool silu) {
  Floats y(x.size());
  const int64_t per_batch = static_cast<int64_t>(x.size()) / batch;
  const int64_t width = channels / groups;
  const auto count = static_cast<double>(per_batch / groups);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t g = 0; g < groups; ++g) {
      const auto each = [&](const auto& body) {
        for (int64_t at = b * per_batch; at < (b + 1) * per_batch; at += channels) {
          for (int64_t c = g * width; c < (g + 1) * width; ++c) body(at + c, c);
        }
      };
      double mean = 0;
      double variance = 0;
      each([&](int64_t at, int64_t) { mean += x[at] / count; });
      each([&](int64_t at, int64_t) { variance += (x[at] - mean) * (x[at] - mean) / count; });
      each([&](int64_t at, int64_t c) {
        const double v = (x[at] - mean) / std::sqrt(variance + eps) * weight[c] + bias[c];
        y[at] = static_cast<float>(silu ? v / (1.0 + std::exp(-v)) : v);
      });
    }
  }
  return y;
}

Floats softmax(const Floats& x, int64_t width) {
  Floats y;
  for (size_t row = 0; row < x.size(); row += width) {
    double top = -std::numeric_limits<double>::infinity();
    double total = 0;
    for (int64_t i = 0; i < width; ++i) top = std::max(top, double{x[row + i]});
    if (std::isinf(top) && top < 0) top = 0;
    for (int64_t i = 0; i < width; ++i) total += std::exp(x[row + i] - top);
    for (int64_t i = 0; i < width; ++i) {
      y.push_back(total == 0 ? 0.0F : static_cast<float>(std::exp(x[row + i] - top) / total));
    }
  }
  return y;
}

std::vector<int32_t> top_k(const Floats& x, int64_t width, int64_t k) {
  std::vector<int32_t> y;
  for (size_t row = 0; row < x.size(); row += width) {
    std::vector<int32_t> order;
    for (int64_t i = 0; i < width; ++i) order.push_back(static_cast<int32_t>(i));
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      const float left = x[row + a];
      const float right = x[row + b];
      return std::isnan(left) ? !std::isnan(right) : left > right;
    });
    y.insert(y.end(), order.begin(), order.begin() + k);
  }
  return y;
}

Floats gelu(const Floats& x, bool tanh) {
  Floats y;
  for (const double v : x) {
    const double u = std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
    const double phi = tanh ? 0.5 + 0.5 * std::tanh(u) : 0.5 * std::erfc(-v / std::numbers::sqrt2);
    y.push_back(static_cast<float>(v * phi));
  }
  return y;
}

Floats silu(const Floats& x) {
  Floats y;
  for (const double v : x) y.push_back(static_cast<float>(v / (1.0 + std::exp(-v))));
  return y;
}

Floats swiglu(const Floats& x, int64_t half) {
  Floats y;
  for (size_t row = 0; row < x.size(); row += 2 * half) {
    for (int64_t i = 0; i < half; ++i) {
      const double gate = x[row + i];
      y.push_back(static_cast<float>(gate / (1.0 + std::exp(-gate)) * x[row + half + i]));
    }
  }
  return y;
}

Floats conv2d(const Floats& x, const Floats& w, const Floats& bias, int64_t batch, int64_t height,
              int64_t width, int64_t in_channels, int64_t out_channels, int64_t kernel,
              int64_t stride, const std::vector<int64_t>& pads) {
  Floats y;
  const int64_t out_height = (height + pads[0] + pads[1] - kernel) / stride + 1;
  const int64_t out_width = (width + pads[2] + pads[3] - kernel) / stride + 1;
  const auto pixel = [&](int64_t b, int64_t row, int64_t col) -> const float* {
    const bool inside = row >= 0 && row < height && col >= 0 && col < width;
    return inside ? x.data() + ((b * height + row) * width + col) * in_channels : nullptr;
  };
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t at = 0; at < out_height * out_width; ++at) {
      for (int64_t o = 0; o < out_channels; ++o) {
        double sum = bias.empty() ? 0.0 : bias[o];
        for (int64_t tap = 0; tap < kernel * kernel; ++tap) {
          const float* from = pixel(b, at / out_width * stride + tap / kernel - pads[0],
                                    at % out_width * stride + tap % kernel - pads[2]);
          if (from == nullptr) continue;
          const float* weights = w.data() + (o * kernel * kernel + tap) * in_channels;
          for (int64_t c = 0; c < in_channels; ++c) sum += double{from[c]} * weights[c];
        }
        y.push_back(static_cast<float>(sum));
      }
    }
  }
  return y;
}

Floats conv3d(const Floats& x, const std::vector<int64_t>& x_shape, const Floats& w,
              const std::vector<int64_t>& w_shape, const Floats& bias, int64_t depth_stride,
              int64_t plane_stride, const std::vector<int64_t>& pads) {
  Floats y;
  const int64_t strides[3] = {depth_stride, plane_stride, plane_stride};
  int64_t sizes[3];
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t around = pads[2 * axis] + pads[2 * axis + 1];
    sizes[axis] = (x_shape[axis + 1] + around - w_shape[axis + 1]) / strides[axis] + 1;
  }
  const int64_t voxels = sizes[0] * sizes[1] * sizes[2];
  const int64_t taps = w_shape[1] * w_shape[2] * w_shape[3];
  const int64_t channels = x_shape[4];
  for (int64_t at = 0; at < x_shape[0] * voxels; ++at) {
    const int64_t out[3] = {at / (sizes[1] * sizes[2]) % sizes[0], at / sizes[2] % sizes[1],
                            at % sizes[2]};
    for (int64_t o = 0; o < w_shape[0]; ++o) {
      double sum = bias.empty() ? 0.0 : bias[o];
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t kernel[3] = {tap / (w_shape[2] * w_shape[3]), tap / w_shape[3] % w_shape[2],
                                   tap % w_shape[3]};
        int64_t from = at / voxels;
        bool inside = true;
        for (int axis = 0; axis < 3; ++axis) {
          const int64_t place = out[axis] * strides[axis] + kernel[axis] - pads[2 * axis];
          inside = inside && place >= 0 && place < x_shape[axis + 1];
          from = from * x_shape[axis + 1] + place;
        }
        if (!inside) continue;
        for (int64_t c = 0; c < channels; ++c) {
          sum += double{x[from * channels + c]} * w[(o * taps + tap) * channels + c];
        }
      }
      y.push_back(static_cast<float>(sum));
    }
  }
  return y;
}

Floats pixel_unshuffle(const Floats& x, int64_t batch, int64_t height, int64_t width,
                       int64_t channels, int64_t factor) {
  Floats y;
  for (int64_t row = 0; row < batch * height; row += factor) {
    for (int64_t col = 0; col < width; col += factor) {
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t dy = 0; dy < factor; ++dy) {
          for (int64_t dx = 0; dx < factor; ++dx) {
            y.push_back(x[((row + dy) * width + col + dx) * channels + c]);
          }
        }
      }
    }
  }
  return y;
}

Floats rope(const Floats& x, const Floats& cos, const Floats& sin, int64_t tokens, int64_t depth,
            bool adjacent) {
  Floats y(x.size());
  const int64_t half = depth / 2;
  for (size_t row = 0; row * depth < x.size(); ++row) {
    const int64_t token = static_cast<int64_t>(row) % tokens;
    for (int64_t i = 0; i < half; ++i) {
      const size_t first = row * depth + (adjacent ? 2 * i : i);
      const size_t second = first + (adjacent ? 1 : half);
      const double c = cos[token * half + i];
      const double s = sin[token * half + i];
      y[first] = static_cast<float>(x[first] * c - x[second] * s);
      y[second] = static_cast<float>(x[second] * c + x[first] * s);
    }
  }
  return y;
}

}  // namespace mere::ref
