#include "tensor/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

struct TypeRow {
  std::string_view name;
  StoredType type;
  size_t bytes;
};

constexpr std::array<TypeRow, 13> kTypes = {{
    {"F64", StoredType::kF64, 8},
    {"F32", StoredType::kF32, 4},
    {"F16", StoredType::kF16, 2},
    {"BF16", StoredType::kBF16, 2},
    {"I64", StoredType::kI64, 8},
    {"I32", StoredType::kI32, 4},
    {"I16", StoredType::kI16, 2},
    {"I8", StoredType::kI8, 1},
    {"U64", StoredType::kU64, 8},
    {"U32", StoredType::kU32, 4},
    {"U16", StoredType::kU16, 2},
    {"U8", StoredType::kU8, 1},
    {"BOOL", StoredType::kBool, 1},
}};

// Parsed JSON takes up to twenty times its text; the largest published headers are below 10 MB.
constexpr size_t kMaxHeaderBytes = size_t{32} << 20;
constexpr size_t kMaxRank = 8;
constexpr std::string_view kLfsSignature = "version https://git-lfs";

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, std::string source)
      : bytes_(bytes), source_(std::move(source)) {}

  SafetensorsHeader read() {
    const std::string_view json = header_text();
    data_begin_ = 8 + json.size();
    const Json object = parse_json(json, source_ + " (header)");
    if (!object.is_object()) fail("header is not a JSON object");
    for (const auto& [name, value] : object.items()) {
      if (name == "__metadata__") {
        read_metadata(value);
      } else {
        header_.tensors.emplace(name, read_tensor(name, value));
      }
    }
    check_overlaps();
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const {
    throw IoError{{"weights_damaged", source_, source_ + ": " + what, hint}};
  }
  [[noreturn]] void fail_tensor(const std::string& name, const std::string& what) const {
    fail("tensor \"" + printable(name) + "\" " + what);
  }

  std::string_view header_text() const {
    const std::string_view all(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    if (all.starts_with(kLfsSignature)) {
      fail("this is a Git LFS pointer, not the weights", "fetch the real file: git lfs pull");
    }
    if (all.size() < 8) fail("too short to be a safetensors file");
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(all[i]);
    if (length > all.size() - 8 || length > kMaxHeaderBytes) {
      fail("header length " + std::to_string(length) + " does not fit a file of " +
               std::to_string(all.size()) + " bytes",
           "the file is truncated or not a safetensors file");
    }
    const std::string_view text = all.substr(8, length);
    // The JSON reader takes a NUL for the end of its input and would not see what follows.
    if (text.find('\0') != std::string_view::npos) fail("header holds a NUL byte");
    return text;
  }

  void read_metadata(const Json& value) {
    if (!value.is_object()) fail("__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail("__metadata__ value is not a string");
      header_.metadata.emplace(key, text.get<std::string>());
    }
  }

  StoredTensor read_tensor(const std::string& name, const Json& value) const {
    if (!value.is_object()) fail_tensor(name, "is not described by an object");
    StoredTensor tensor;
    const TypeRow& row = read_type(name, value);
    tensor.type = row.type;
    const size_t elements = read_shape(name, value, tensor.shape);
    const auto offsets = value.find("data_offsets");
    if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 ||
        !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
      fail_tensor(name, "has no valid data_offsets");
    }
    const auto begin = (*offsets)[0].get<uint64_t>();
    const auto end = (*offsets)[1].get<uint64_t>();
    const size_t room = bytes_.size() - data_begin_;
    if (begin > end) fail_tensor(name, "ends before it begins");
    if (end > room) {
      fail_tensor(name, "ends at byte " + std::to_string(end) + " of data, but the file holds " +
                            std::to_string(room) + "; it is truncated");
    }
    if (elements > std::numeric_limits<size_t>::max() / row.bytes ||
        end - begin != elements * row.bytes) {
      fail_tensor(name,
                  "has " + std::to_string(end - begin) + " bytes, which does not match its shape");
    }
    tensor.begin = data_begin_ + begin;
    tensor.end = data_begin_ + end;
    return tensor;
  }

  const TypeRow& read_type(const std::string& name, const Json& value) const {
    const auto type = value.find("dtype");
    if (type == value.end() || !type->is_string()) fail_tensor(name, "has no dtype");
    const auto* row = std::ranges::find(kTypes, type->get<std::string>(), &TypeRow::name);
    if (row == kTypes.end()) {
      fail_tensor(name, "has dtype " + printable(type->get<std::string>(), 20) +
                            ", which is not supported");
    }
    return *row;
  }

  // Fills `shape` and returns the number of elements.
  size_t read_shape(const std::string& name, const Json& value, std::vector<int64_t>& shape) const {
    const auto dims = value.find("shape");
    if (dims == value.end() || !dims->is_array()) fail_tensor(name, "has no shape");
    if (dims->size() > kMaxRank) fail_tensor(name, "has more than 8 dimensions");
    size_t elements = 1;
    for (const Json& dim : *dims) {
      if (!dim.is_number_unsigned() || dim.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
        fail_tensor(name, "has a dimension that is negative, too large or not an integer");
      }
      const auto n = dim.get<uint64_t>();
      if (n != 0 && elements > std::numeric_limits<size_t>::max() / n) {
        fail_tensor(name, "has a shape whose size overflows");
      }
      elements *= n;
      shape.push_back(static_cast<int64_t>(n));
    }
    return elements;
  }

  void check_overlaps() const {
    std::vector<std::pair<size_t, const std::string*>> order;
    for (const auto& [name, tensor] : header_.tensors) {
      if (tensor.end > tensor.begin) order.emplace_back(tensor.begin, &name);
    }
    std::ranges::sort(order);
    for (size_t i = 1; i < order.size(); ++i) {
      if (header_.tensors.at(*order[i - 1].second).end > order[i].first) {
        fail_tensor(*order[i].second,
                    "overlaps tensor \"" + printable(*order[i - 1].second) + "\"");
      }
    }
  }

  std::span<const std::byte> bytes_;
  std::string source_;
  size_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace

size_t stored_type_bytes(StoredType type) {
  return std::ranges::find(kTypes, type, &TypeRow::type)->bytes;
}

std::string_view stored_type_name(StoredType type) {
  return std::ranges::find(kTypes, type, &TypeRow::type)->name;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, const std::string& source) {
  return HeaderReader(bytes, source).read();
}

SafetensorsFile::SafetensorsFile(const fs::path& path)
    : file_(path), header_(parse_safetensors(file_.bytes(), path.string())) {}

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  const auto it = header_.tensors.find(name);
  return it == header_.tensors.end() ? nullptr : &it->second;
}

std::span<const std::byte> SafetensorsFile::data(const StoredTensor& tensor) const {
  return file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

}  // namespace mere
