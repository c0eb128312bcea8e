// The weights of one component of a model: one safetensors file or shards, mapped, never copied.
//
//   Weights weights = Weights::open(model.component("transformer"));
//   Array w = weights.get("x_embedder.weight", {hidden, in});
//
// Names are those of the published checkpoint. A rename table maps another layout's names to them,
// so that model code is written once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "tensor/safetensors.h"
#include "tensor/tensor.h"

namespace mere {

// Gives the checkpoint name for a name found in a file; returns the name itself when it is one.
using RenameRule = std::function<std::string(const std::string& stored_name)>;

class Weights {
 public:
  // `folder` holds *.safetensors.index.json and its shards, or one *.safetensors file, or files
  // 0.safetensors, 1.safetensors, ... IoError when a shard is missing, a tensor of the index is not
  // in its shard, or two files hold the same tensor.
  static Weights open(const fs::path& folder, const RenameRule& rename = {});
  static Weights open_file(const fs::path& file, const RenameRule& rename = {});

  bool has(const std::string& name) const;
  // Stored shape; nullopt when absent.
  std::optional<std::vector<int64_t>> shape(const std::string& name) const;
  std::vector<std::string> names() const;
  // "FILE: tensor "NAME"" for messages.
  std::string locate(const std::string& name) const;

  // The tensor as stored (f32, f16 or bf16) without a copy. IoError naming file and tensor when it
  // is missing, of another shape, or not a floating type.
  Array get(const std::string& name, const std::vector<int64_t>& shape) const;
  // The same widened to float32; for small tensors (norms, biases).
  Array get_f32(const std::string& name, const std::vector<int64_t>& shape) const;
  // Matrix `name`.weight [out, in]: floating, or MLX affine quantised when `name`.scales is there.
  // Bits and group size follow from the shapes.
  LinearWeight get_linear(const std::string& name, int64_t out, int64_t in) const;

  // Reads every floating tensor once and throws IoError naming file and tensor when one holds a
  // NaN, an Inf, or a value whose square overflows float32: such a checkpoint would give a broken
  // or, worse, a plausible wrong result. Parallel, at memory speed.
  void check_values() const;
  // The same of the tensors that were asked for so far, for models that leave some unread.
  void check_used_values() const;

  // IoError naming a tensor whose name starts with one of `prefixes` and that nothing has asked
  // for: the config describes a smaller model than the file holds, and would draw a plausible wrong
  // one.
  void check_all_used(const std::vector<std::string>& prefixes) const;

  // MappedFile::release_pages of every file: for weights that are not needed for a while. Arrays
  // stay valid.
  void release_pages() const;

  int64_t total_bytes() const;
  const std::map<std::string, std::string>& metadata() const;  // of the first file

 private:
  void check_values(const std::function<bool(const std::string& name)>& chosen) const;
  struct Entry {
    std::shared_ptr<const SafetensorsFile> file;
    const StoredTensor* tensor;
  };
  void add_file(const fs::path& path, const RenameRule& rename);
  const Entry& entry(const std::string& name) const;
  Array array_of(const std::string& name, const Entry& entry) const;

  fs::path folder_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::map<std::string, Entry> entries_;
  mutable std::set<std::string> used_;
};

}  // namespace mere
