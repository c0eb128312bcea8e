// The header of a safetensors file: names, types and shapes, without its data. For recognising what
// a folder holds; the reader that loads weights is tensor/safetensors.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/files.h"

namespace mere {

struct TensorEntry {
  std::string dtype;  // "BF16", "U32", ...
  std::vector<int64_t> shape;
};

// Reads at most 32 MiB of `path`. IoError naming the file when the header is damaged; its code is
// `weights_truncated` when the file is shorter than its header tells: a cut download.
std::map<std::string, TensorEntry> read_safetensors_header(const fs::path& path);

}  // namespace mere
