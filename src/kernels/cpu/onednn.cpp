#include "kernels/cpu/onednn.h"

#include <dnnl.hpp>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

#include "kernels/cpu/parallel.h"

namespace mere::cpu {
namespace {

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::convolution_forward::primitive_desc conv_description(const ConvShape& s,
                                                           dnnl::memory::data_type type,
                                                           bool with_bias) {
  using Dims = dnnl::memory::dims;
  using Type = dnnl::memory::data_type;
  using Tag = dnnl::memory::format_tag;
  const dnnl::memory::desc src({s.batch, s.in_channels, s.in_height, s.in_width}, type, Tag::nhwc);
  const dnnl::memory::desc weight({s.out_channels, s.in_channels, s.kernel_height, s.kernel_width},
                                  type, Tag::any);
  const dnnl::memory::desc bias({s.out_channels}, Type::f32, Tag::x);
  const dnnl::memory::desc dst({s.batch, s.out_channels, s.out_height, s.out_width}, Type::f32,
                               Tag::nhwc);
  const Dims strides = {s.stride, s.stride};
  const Dims pad_begin = {s.pad_top, s.pad_left};
  const Dims pad_end = {s.pad_bottom, s.pad_right};
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const auto kind = dnnl::prop_kind::forward_inference;
#if DNNL_VERSION_MAJOR >= 3
  if (with_bias) {
    return {cpu_engine(), kind, algorithm, src, weight, bias, dst, strides, pad_begin, pad_end};
  }
  return {cpu_engine(), kind, algorithm, src, weight, dst, strides, pad_begin, pad_end};
#else
  if (with_bias) {
    return {{kind, algorithm, src, weight, bias, dst, strides, pad_begin, pad_end}, cpu_engine()};
  }
  return {{kind, algorithm, src, weight, dst, strides, pad_begin, pad_end}, cpu_engine()};
#endif
}

}  // namespace

void onednn_cap_avx2() { dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2); }

void onednn_cap_avx512() { dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16); }

bool has_bf16_gemm() {
  configure();
  const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  constexpr auto kNeeded = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_bf16);
  return (isa & kNeeded) == kNeeded;
}

namespace {

void run_conv(const ConvShape& s, dnnl::memory::data_type type, const void* src, const void* weight,
              const float* bias, float* dst) {
  configure();
  const auto description = conv_description(s, type, bias != nullptr);
  dnnl::stream stream(cpu_engine());
  const auto wrap = [](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, cpu_engine(), const_cast<void*>(data));
  };
  const auto& stride = s.weight_strides;
  const dnnl::memory::desc given({s.out_channels, s.in_channels, s.kernel_height, s.kernel_width},
                                 type,
                                 dnnl::memory::dims{stride[0], stride[3], stride[1], stride[2]});
  dnnl::memory weight_memory = wrap(given, weight);
  if (description.weights_desc() != given) {
    dnnl::memory blocked(description.weights_desc(), cpu_engine());
    dnnl::reorder(weight_memory, blocked).execute(stream, weight_memory, blocked);
    weight_memory = blocked;
  }
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, wrap(description.src_desc(), src)},
      {DNNL_ARG_WEIGHTS, weight_memory},
      {DNNL_ARG_DST, wrap(description.dst_desc(), dst)},
  };
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, wrap(description.bias_desc(), bias));
  dnnl::convolution_forward(description).execute(stream, arguments);
  stream.wait();
}

}  // namespace

void conv2d(const ConvShape& s, const float* src, const float* weight, const float* bias,
            float* dst) {
  run_conv(s, dnnl::memory::data_type::f32, src, weight, bias, dst);
}

void conv2d_bf16(const ConvShape& s, const uint16_t* src, const uint16_t* weight, const float* bias,
                 float* dst) {
  run_conv(s, dnnl::memory::data_type::bf16, src, weight, bias, dst);
}

}  // namespace mere::cpu

// MLX's own matmul calls the BLAS it was built with, a scalar reference. The dynamic linker takes
// this definition first when the program exports it (ENABLE_EXPORTS), so operations that have no
// kernel of ours, gradients above all, run on oneDNN too.
extern "C" void cblas_sgemm(int layout, int transpose_a, int transpose_b, int m, int n, int k,
                            float alpha, const float* a, int lda, const float* b, int ldb,
                            float beta, float* c, int ldc) {
  constexpr int kRowMajor = 101;
  constexpr int kNoTranspose = 111;
  mere::cpu::configure();
  const char ta = transpose_a == kNoTranspose ? 'N' : 'T';
  const char tb = transpose_b == kNoTranspose ? 'N' : 'T';
  // dnnl_sgemm is row-major; a column-major product is the transposed one.
  const auto status = layout == kRowMajor
                          ? dnnl_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
                          : dnnl_sgemm(tb, ta, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);
  if (status != dnnl_success) throw std::runtime_error("oneDNN sgemm failed");
}
