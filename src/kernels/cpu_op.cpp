#include "kernels/cpu_op.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/buffer_cache.h"

namespace mere {
namespace {

namespace mx = mlx::core;

using Arrays = std::vector<mx::array>;

Arrays select(const Arrays& from, const std::vector<int>& indices) {
  Arrays chosen;
  for (const int index : indices) chosen.push_back(from.at(static_cast<size_t>(index)));
  return chosen;
}

// Same contract as mx::fast::Custom, whose members the prebuilt library does not export.
class CpuOp : public mx::Primitive {
 public:
  CpuOp(mx::Stream stream, const char* name, CpuRun run, Fallback fallback)
      : Primitive(stream), name_(name), run_(std::move(run)), fallback_(std::move(fallback)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    mx::array& out = outputs[0];
    out.set_data(cached_buffer(out.nbytes()));
    if (out.size() == 0) return;
    // Weak copies: the evaluator keeps the buffers alive until the task has run, and a strong copy
    // would keep the graph alive with them.
    Arrays weak_inputs;
    weak_inputs.reserve(inputs.size());
    for (const mx::array& input : inputs) {
      weak_inputs.push_back(mx::array::unsafe_weak_copy(input));
    }
    mx::cpu::get_command_encoder(stream()).dispatch(
        [run = run_, weak_inputs = std::move(weak_inputs),
         weak_out = mx::array::unsafe_weak_copy(out)]() mutable { run(weak_inputs, weak_out); });
  }

  void eval_gpu(const Arrays&, Arrays&) override {
    throw std::logic_error("a CPU kernel was placed on a GPU stream");
  }

  Arrays vjp(const Arrays& primals, const Arrays& cotangents, const std::vector<int>& argnums,
             const Arrays&) override {
    return mx::vjp(fallback_of(primals, argnums), select(primals, argnums), cotangents).second;
  }

  Arrays jvp(const Arrays& primals, const Arrays& tangents,
             const std::vector<int>& argnums) override {
    return mx::jvp(fallback_of(primals, argnums), select(primals, argnums), tangents).second;
  }

  std::pair<Arrays, std::vector<int>> vmap(const Arrays& inputs,
                                           const std::vector<int>& axes) override {
    return {mx::vmap(fallback_, axes)(inputs), {0}};
  }

  const char* name() const override { return name_; }

 private:
  // The fallback as a function of the inputs `argnums`. The others stay constant: they may be
  // integers, which have no gradient.
  Fallback fallback_of(const Arrays& primals, const std::vector<int>& argnums) const {
    return [fallback = fallback_, primals, argnums](const Arrays& chosen) {
      Arrays inputs = primals;
      for (size_t i = 0; i < argnums.size(); ++i) {
        inputs.at(static_cast<size_t>(argnums[i])) = chosen[i];
      }
      return fallback(inputs);
    };
  }

  const char* name_;
  CpuRun run_;
  Fallback fallback_;
};

}  // namespace

mx::array cpu_op(const char* name, const mx::Shape& shape, std::vector<mx::array> inputs,
                 CpuRun run, Fallback fallback) {
  if (mx::default_device() != mx::Device::cpu) return fallback(inputs).at(0);
  auto primitive = std::make_shared<CpuOp>(mx::default_stream(mx::Device::cpu), name,
                                           std::move(run), std::move(fallback));
  return mx::array(shape, mx::float32, std::move(primitive), std::move(inputs));
}

bool is_floating(const mx::array& a) {
  return a.dtype() == mx::float32 || a.dtype() == mx::bfloat16 || a.dtype() == mx::float16;
}

void require_float32(const char* name, std::initializer_list<mx::array> arrays) {
  for (const mx::array& a : arrays) {
    if (a.dtype() == mx::float32) continue;
    throw std::invalid_argument("[" + std::string(name) + "] inputs must be float32");
  }
}

}  // namespace mere
