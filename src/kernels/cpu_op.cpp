#include "kernels/cpu_op.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/fast_primitives.h>

#include <stdexcept>
#include <utility>

namespace mere {
namespace {

namespace mx = mlx::core;

class CpuOp : public mx::fast::Custom {
 public:
  CpuOp(mx::Stream stream, const char* name, CpuRun run, Fallback fallback)
      : Custom(stream, std::move(fallback)), name_(name), run_(std::move(run)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    mx::array& out = outputs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    // Weak copies: the evaluator keeps the buffers alive until the task has run, and a strong copy
    // would keep the graph alive with them.
    std::vector<mx::array> weak_inputs;
    weak_inputs.reserve(inputs.size());
    for (const mx::array& input : inputs) {
      weak_inputs.push_back(mx::array::unsafe_weak_copy(input));
    }
    mx::cpu::get_command_encoder(stream()).dispatch(
        [run = run_, weak_inputs = std::move(weak_inputs),
         weak_out = mx::array::unsafe_weak_copy(out)]() mutable { run(weak_inputs, weak_out); });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::logic_error("a CPU kernel was placed on a GPU stream");
  }

  const char* name() const override { return name_; }

 private:
  const char* name_;
  CpuRun run_;
};

}  // namespace

mx::array cpu_op(const char* name, const mx::Shape& shape, std::vector<mx::array> inputs, CpuRun run,
                 Fallback fallback) {
  if (mx::default_device() != mx::Device::cpu) return fallback(inputs).at(0);
  auto primitive = std::make_shared<CpuOp>(mx::default_stream(mx::Device::cpu), name, std::move(run),
                                           std::move(fallback));
  return mx::array(shape, mx::float32, std::move(primitive), std::move(inputs));
}

}  // namespace mere
