// Safetensors files: a checked header over mapped bytes.
//
//   const SafetensorsFile file(path);
//   for (const auto& [name, tensor] : file.tensors()) use(tensor.shape, file.data(tensor));
//
// Layout: 8-byte little-endian header length, a JSON object {name: {dtype, shape, data_offsets}},
// then the data. Nothing of a file is trusted: every offset, size, overlap and duplicate is checked
// before a tensor is handed out, and nothing larger than the file is ever allocated.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"

namespace mere {

enum class StoredType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool
};

size_t stored_type_bytes(StoredType type);
std::string_view stored_type_name(StoredType type);  // "F32", ...
// "[2, 3]", for messages.
std::string shape_text(const std::vector<int64_t>& shape);

struct StoredTensor {
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  size_t begin = 0;  // byte offsets in the file
  size_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses and checks the header of a file whose whole contents are `bytes`. IoError naming `source`
// and the tensor concerned.
SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::string& source);

// An open file. Tensors stay valid as long as it lives.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);

  const fs::path& path() const { return file_.path(); }
  const std::map<std::string, StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // nullptr when there is none of that name.
  const StoredTensor* find(const std::string& name) const;
  std::span<const std::byte> data(const StoredTensor& tensor) const;
  void release_pages() const { file_.release_pages(); }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace mere
