// What this machine can do at most, by code that is not ours: the yardstick of every kernel.
#pragma once

namespace mere::bench {

struct MachineLimit {
  int threads = 0;
  // Floating-point operations a second of oneDNN's matrix product, weights in the layout it
  // prefers.
  double f32_flops = 0;
  double bf16_flops = 0;  // 0 where the processor has no bf16 arithmetic
  double copy_bytes = 0;  // a second, read and written, of a copy too large for any cache
  double read_bytes = 0;  // a second, of a sum over an array of that size

  double compute() const { return f32_flops > bf16_flops ? f32_flops : bf16_flops; }
  double memory() const { return copy_bytes; }

  // The least seconds for work that needs both.
  double least_seconds(double flops, double bytes) const;
  bool is_compute_bound(double flops, double bytes) const;
};

// The best of what several repeats give, with the threads and instruction sets that the kernels may
// use (kernels/cpu/parallel.h). Takes about two seconds and 512 MiB.
MachineLimit measure_machine_limit();

}  // namespace mere::bench
