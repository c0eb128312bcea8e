#include "machine_limit.h"

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <functional>
#include <memory>
#include <omp.h>
#include <optional>
#include <string_view>
#include <vector>

#include "cache_sweeper.h"
#include "stopwatch.h"

#include "kernels/cpu/parallel.h"

namespace mere::bench {
namespace {

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

constexpr double kSecondsEach = 0.4;
constexpr int kLeastRepeats = 3;

// Seconds of the fastest run of `body`.
double best_seconds(const std::function<void()>& body) {
  body();
  return repeat(
             kSecondsEach, kLeastRepeats, [] {}, body)
      .best;
}

// ---- Compute ------------------------------------------------------------------------------------

constexpr int64_t kRows = 1536;
constexpr int64_t kIn = 3072;
constexpr int64_t kOut = 3072;

// x [rows, in] W [in, out] -> y [rows, out]; nullopt where oneDNN has only plain loops for it.
std::optional<dnnl::matmul::primitive_desc> matmul_description(const dnnl::engine& engine,
                                                               Type type) {
  const dnnl::memory::desc src({kRows, kIn}, type, Tag::ab);
  const dnnl::memory::desc weights({kIn, kOut}, type, Tag::any);
  const dnnl::memory::desc dst({kRows, kOut}, Type::f32, Tag::ab);
  try {
#if DNNL_VERSION_MAJOR >= 3
    dnnl::matmul::primitive_desc description(engine, src, weights, dst);
#else
    dnnl::matmul::primitive_desc description({src, weights, dst}, engine);
#endif
    const bool plain_loops = std::string_view(description.impl_info_str()).starts_with("ref");
    if (plain_loops) return std::nullopt;
    return description;
  } catch (const dnnl::error&) {
    return std::nullopt;  // no arithmetic of this type
  }
}

double matmul_flops(Type type) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto description = matmul_description(engine, type);
  if (!description) return 0;
  dnnl::stream stream(engine);
  std::vector<float> values(std::max(kRows, kOut) * kIn);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 255) / 255 - 0.5F;
  const auto filled = [&](const dnnl::memory::desc& desc, int64_t height, int64_t width) {
    dnnl::memory plain({{height, width}, Type::f32, Tag::ab}, engine, values.data());
    dnnl::memory packed(desc, engine);
    dnnl::reorder(plain, packed).execute(stream, plain, packed);
    stream.wait();
    return packed;
  };
  const dnnl::memory src = filled(description->src_desc(), kRows, kIn);
  const dnnl::memory weights = filled(description->weights_desc(), kIn, kOut);
  const dnnl::memory dst(description->dst_desc(), engine);
  const dnnl::matmul matmul(*description);
  const double seconds = best_seconds([&] {
    matmul.execute(stream, {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}});
    stream.wait();
  });
  return 2.0 * kRows * kIn * kOut / seconds;
}

// ---- Memory -------------------------------------------------------------------------------------

constexpr int64_t kWords = int64_t{1} << 25;  // 256 MiB in each of two arrays
constexpr double kArrayBytes = kWords * sizeof(uint64_t);

void measure_memory(MachineLimit& limit) {
  const auto from = std::make_unique_for_overwrite<uint64_t[]>(kWords);
  const auto to = std::make_unique_for_overwrite<uint64_t[]>(kWords);
  const auto in_parallel = [](const auto& body) {
    constexpr int64_t kGrain = 1 << 16;
    cpu::parallel_for(kWords, kGrain, body);
  };
  in_parallel([&](int64_t begin, int64_t end) {
    std::fill(from.get() + begin, from.get() + end, uint64_t{0x3F8000003F800000});
  });
  limit.copy_bytes = 2 * kArrayBytes / best_seconds([&] {
                       in_parallel([&](int64_t begin, int64_t end) {
                         std::memcpy(to.get() + begin, from.get() + begin,
                                     static_cast<size_t>(end - begin) * sizeof(uint64_t));
                       });
                     });
  uint64_t total = 0;  // taken below: a sum that nobody takes would not be computed
  const double read_seconds = best_seconds([&] {
    total += parallel_sum({from.get(), static_cast<size_t>(kWords)});
  });
  limit.read_bytes = total == 0 ? 0 : kArrayBytes / read_seconds;
}

}  // namespace

double MachineLimit::least_seconds(double flops, double bytes) const {
  return std::max(flops / compute(), bytes / memory());
}

bool MachineLimit::is_compute_bound(double flops, double bytes) const {
  return flops / compute() > bytes / memory();
}

MachineLimit measure_machine_limit() {
  MachineLimit limit;
  cpu::on_passing_thread([&] {
    cpu::configure();
    limit.threads = omp_get_max_threads();
    limit.f32_flops = matmul_flops(Type::f32);
    limit.bf16_flops = matmul_flops(Type::bf16);
    measure_memory(limit);
  });
  return limit;
}

}  // namespace mere::bench
