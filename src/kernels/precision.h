// How exactly the CPU kernels compute.
#pragma once

namespace mere {

enum class Precision {
  // Float32 sums of float32 products, whatever the storage.
  kFloat32,
  // The fastest the processor has for the weights at hand. With AMX or fast AVX512-BF16: bfloat16
  // products, float32 sums. Else, on x86, bfloat16 and quantised weights meet activations in int16
  // fixed point with a scale per group: relative error about 5e-5, a fortieth of bfloat16's.
  kAuto,
};

// Process-wide; kFloat32 until set. Set it before work starts.
void set_precision(Precision precision);
Precision precision();

// What the largest products run in under the current setting on this processor: "float32",
// "bfloat16" or "int16".
const char* compute_type();

}  // namespace mere
