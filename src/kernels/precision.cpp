#include "kernels/precision.h"

#include <atomic>

#include "kernels/cpu/bf16_panels.h"
#include "kernels/cpu/gemm.h"

namespace mere {
namespace {

std::atomic<Precision> chosen_precision{Precision::kFloat32};

}  // namespace

void set_precision(Precision precision) { chosen_precision = precision; }

Precision precision() { return chosen_precision; }

const char* compute_type() {
  if (precision() == Precision::kFloat32) return "float32";
  if (cpu::has_bf16_panels()) return "bfloat16";
  return cpu::has_int16_gemm() ? "int16" : "float32";
}

}  // namespace mere
