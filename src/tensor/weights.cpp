#include "tensor/weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mlx/primitives.h>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"

namespace mere {
namespace {

// A graph node that hands out mapped bytes as they are. The array constructor from a pointer
// copies.
class MappedSource : public mx::Primitive {
 public:
  // `owner` keeps `data` valid; the sizeof(size_t) bytes before it must belong to the same memory.
  MappedSource(mx::Stream stream, std::shared_ptr<const void> owner, const std::byte* data)
      : Primitive(stream), owner_(std::move(owner)), data_(data) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>& outputs) override {
    // A CPU buffer starts with its size; data follows. The mapped bytes before a tensor are the
    // file's header or another tensor, so the address is valid, and MLX never frees it: the deleter
    // only lets go of the file.
    auto* address = const_cast<std::byte*>(data_) - sizeof(size_t);
    outputs[0].set_data(mx::allocator::Data(mx::allocator::Buffer(address),
                                            [owner = owner_](mx::allocator::Buffer) {}));
  }
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::logic_error("mapped weights are a CPU source");
  }
  const char* name() const override { return "mapped_source"; }

 private:
  std::shared_ptr<const void> owner_;
  const std::byte* data_;
};

std::optional<mx::Dtype> array_type(StoredType type) {
  switch (type) {
    case StoredType::kF32:
      return mx::float32;
    case StoredType::kF16:
      return mx::float16;
    case StoredType::kBF16:
      return mx::bfloat16;
    case StoredType::kU32:
      return mx::uint32;
    case StoredType::kI32:
      return mx::int32;
    case StoredType::kI64:
      return mx::int64;
    case StoredType::kU8:
      return mx::uint8;
    default:
      return std::nullopt;
  }
}

bool is_floating(StoredType type) {
  return type == StoredType::kF32 || type == StoredType::kF16 || type == StoredType::kBF16;
}

std::vector<fs::path> weight_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path());
  }
  if (ec) {
    throw IoError{{"weights_missing", folder.string(), folder.string() + ": " + ec.message(), ""}};
  }
  std::ranges::sort(files);
  return files;
}

std::optional<fs::path> index_file(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->path().filename().string().ends_with(".safetensors.index.json")) {
      found.push_back(it->path());
    }
  }
  if (found.size() > 1) {
    throw IoError{{"weights_ambiguous", folder.string(),
                   folder.string() + ": holds more than one *.safetensors.index.json", ""}};
  }
  return found.empty() ? std::nullopt : std::optional(found.front());
}

// The index maps tensor names to shard files; returns shard -> names.
std::map<std::string, std::set<std::string>> read_index(const fs::path& path) {
  const Json json = parse_json_file(path);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object()) {
    throw IoError{{"weights_damaged", path.string(), path.string() + ": has no weight_map", ""}};
  }
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string()) {
      throw IoError{
          {"weights_damaged", path.string(),
           path.string() + ": weight_map of \"" + printable(name) + "\" is not a file name", ""}};
    }
    shards[shard.get<std::string>()].insert(name);
  }
  return shards;
}

// The first value of a tensor that no sound checkpoint holds, as text; empty when all are fine.
// Squares of values above this overflow float32.
constexpr float kLargestSane = 1.8e19F;

std::string describe_bad(float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return "an infinite value";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(value));
  return text.data();
}

// Widens `n` values at `from`, which a header of odd length leaves unaligned.
void widen_block(StoredType type, const std::byte* from, int64_t n, std::vector<uint16_t>& halves,
                 float* out) {
  if (type == StoredType::kF32) {
    std::memcpy(out, from, n * sizeof(float));
    return;
  }
  const auto widen = type == StoredType::kBF16 ? &cpu::bf16_to_f32 : &cpu::f16_to_f32;
  if (reinterpret_cast<uintptr_t>(from) % sizeof(uint16_t) == 0) {
    widen(reinterpret_cast<const uint16_t*>(from), out, n);
    return;
  }
  halves.resize(n);
  std::memcpy(halves.data(), from, n * sizeof(uint16_t));
  widen(halves.data(), out, n);
}

std::string find_bad_value(StoredType type, std::span<const std::byte> data) {
  constexpr int64_t kBlock = 1 << 16;
  const size_t width = stored_type_bytes(type);
  const auto count = static_cast<int64_t>(data.size() / width);
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  std::atomic<bool> found{false};
  std::string problem;
  cpu::parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> wide(kBlock);
    std::vector<uint16_t> halves;
    for (int64_t block = begin; block < end && !found; ++block) {
      const int64_t n = std::min(kBlock, count - block * kBlock);
      widen_block(type, data.data() + block * kBlock * width, n, halves, wide.data());
      bool bad = false;
      for (int64_t i = 0; i < n; ++i) bad |= !(std::fabs(wide[i]) <= kLargestSane);
      if (!bad || found.exchange(true)) continue;
      const auto is_bad = [](float v) { return !(std::fabs(v) <= kLargestSane); };
      problem = describe_bad(*std::find_if(wide.begin(), wide.begin() + n, is_bad));
    }
  });
  return problem;
}

}  // namespace

Weights Weights::open(const fs::path& folder, const RenameRule& rename) {
  Weights weights;
  weights.folder_ = folder;
  if (const auto index = index_file(folder)) {
    for (const auto& [shard, names] : read_index(*index)) {
      const fs::path path = resolve_model_file(folder, shard);
      if (!fs::exists(path)) {
        throw IoError{
            {"weights_missing", path.string(),
             path.string() + ": shard is missing (named by " + index->filename().string() + ")",
             "fetch the model again"}};
      }
      weights.add_file(path, rename);
      const SafetensorsFile& file = *weights.files_.back();
      for (const std::string& name : names) {
        if (file.find(name) != nullptr) continue;
        throw IoError{{"weights_damaged", path.string(),
                       path.string() + ": tensor \"" + printable(name) +
                           "\" is listed in the index but not in the file",
                       ""}};
      }
    }
  } else {
    const std::vector<fs::path> files = weight_files(folder);
    if (files.empty()) {
      throw IoError{{"weights_missing", folder.string(),
                     folder.string() + ": holds no *.safetensors file", "fetch the model again"}};
    }
    for (const fs::path& path : files) weights.add_file(path, rename);
  }
  return weights;
}

Weights Weights::open_file(const fs::path& file, const RenameRule& rename) {
  Weights weights;
  weights.folder_ = file.parent_path();
  weights.add_file(file, rename);
  return weights;
}

void Weights::add_file(const fs::path& path, const RenameRule& rename) {
  auto file = std::make_shared<const SafetensorsFile>(path);
  files_.push_back(file);
  for (const auto& [stored_name, tensor] : file->tensors()) {
    const std::string name = rename ? rename(stored_name) : stored_name;
    const auto [it, added] = entries_.emplace(name, Entry{file, &tensor});
    if (added) continue;
    throw IoError{{"weights_damaged", path.string(),
                   path.string() + ": tensor \"" + printable(stored_name) + "\" is also in " +
                       it->second.file->path().filename().string(),
                   ""}};
  }
}

bool Weights::has(const std::string& name) const { return entries_.contains(name); }

std::optional<std::vector<int64_t>> Weights::shape(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return std::nullopt;
  return it->second.tensor->shape;
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::string Weights::locate(const std::string& name) const {
  const auto it = entries_.find(name);
  const fs::path where = it == entries_.end() ? folder_ : it->second.file->path();
  return where.string() + ": tensor \"" + printable(name) + "\"";
}

const Weights::Entry& Weights::entry(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) {
    throw IoError{{"weights_missing", name, locate(name) + " is missing",
                   "the checkpoint is incomplete or of another model"}};
  }
  used_.insert(name);
  return it->second;
}

Array Weights::array_of(const std::string& name, const Entry& e) const {
  const auto type = array_type(e.tensor->type);
  if (!type) {
    throw IoError{{"weights_damaged", name,
                   locate(name) + " has dtype " + std::string(stored_type_name(e.tensor->type)) +
                       ", which is not supported here",
                   ""}};
  }
  mx::Shape shape;
  for (const int64_t dim : e.tensor->shape) shape.push_back(static_cast<int>(dim));
  const std::span<const std::byte> data = e.file->data(*e.tensor);
  const size_t width = stored_type_bytes(e.tensor->type);
  std::shared_ptr<const void> owner = e.file;
  const std::byte* bytes = data.data();
  if (reinterpret_cast<uintptr_t>(bytes) % width != 0) {
    // An odd header length leaves the data unaligned; such a tensor is copied behind room for the
    // buffer's size.
    auto copy = std::make_shared<std::vector<std::byte>>(data.size() + sizeof(size_t));
    std::ranges::copy(data, copy->begin() + sizeof(size_t));
    bytes = copy->data() + sizeof(size_t);
    owner = std::move(copy);
  }
  return Array(
      std::move(shape), *type,
      std::make_shared<MappedSource>(mx::default_stream(mx::Device::cpu), std::move(owner), bytes),
      std::vector<Array>{});
}

Array Weights::get(const std::string& name, const std::vector<int64_t>& shape) const {
  const Entry& e = entry(name);
  if (!is_floating(e.tensor->type)) {
    throw IoError{{"weights_damaged", name,
                   locate(name) + " has dtype " + std::string(stored_type_name(e.tensor->type)) +
                       " where a floating one is expected",
                   ""}};
  }
  if (e.tensor->shape != shape) {
    throw IoError{{"weights_damaged", name,
                   locate(name) + " has shape " + shape_text(e.tensor->shape) + " where " +
                       shape_text(shape) + " is expected",
                   "the checkpoint does not fit its config"}};
  }
  return array_of(name, e);
}

Array Weights::get_f32(const std::string& name, const std::vector<int64_t>& shape) const {
  return mx::astype(get(name, shape), mx::float32);
}

LinearWeight Weights::get_linear(const std::string& name, int64_t out, int64_t in) const {
  const std::string weight = name + ".weight";
  if (!has(name + ".scales")) {
    return dense_weight(get(weight, {out, in}));
  }
  const Entry& codes = entry(weight);
  const std::vector<int64_t>& packed = codes.tensor->shape;
  const std::vector<int64_t> scales = entry(name + ".scales").tensor->shape;
  const auto refuse = [&](const std::string& why) {
    throw IoError{{"weights_damaged", weight, locate(weight) + " " + why,
                   "the checkpoint does not fit its config"}};
  };
  if (codes.tensor->type != StoredType::kU32 || packed.size() != 2 || packed[0] != out) {
    refuse("is not a packed matrix of " + std::to_string(out) + " rows");
  }
  if (packed[1] * 32 % in != 0) refuse("does not hold a whole number of bits per value");
  const int64_t bits = packed[1] * 32 / in;
  if (bits < 1 || bits > 8 || bits == 7) refuse("has " + std::to_string(bits) + " bits per value");
  if (scales.size() != 2 || scales[0] != out || scales[1] < 1 || in % scales[1] != 0) {
    refuse("has scales of shape " + shape_text(scales));
  }
  const int64_t group = in / scales[1];
  if (group != 32 && group != 64 && group != 128) refuse("has groups of " + std::to_string(group));
  return {array_of(weight, codes),
          get(name + ".scales", scales),
          get(name + ".biases", scales),
          static_cast<int>(bits),
          static_cast<int>(group),
          out,
          in};
}

void Weights::check_values() const {
  check_values([](const std::string&) { return true; });
}

void Weights::check_used_values() const {
  check_values([this](const std::string& name) { return used_.contains(name); });
}

void Weights::check_values(const std::function<bool(const std::string& name)>& chosen) const {
  cpu::on_passing_thread([&] {
    for (const auto& [name, e] : entries_) {
      if (!is_floating(e.tensor->type) || !chosen(name)) continue;
      const std::string problem = find_bad_value(e.tensor->type, e.file->data(*e.tensor));
      if (problem.empty()) continue;
      throw IoError{{"weights_damaged", name, locate(name) + " holds " + problem,
                     "the file is damaged; fetch the model again"}};
    }
  });
}

void Weights::check_all_used(const std::vector<std::string>& prefixes) const {
  for (const auto& [name, e] : entries_) {
    const auto begins = [&name = name](const std::string& prefix) {
      return name.starts_with(prefix);
    };
    if (used_.contains(name) || std::ranges::none_of(prefixes, begins)) continue;
    throw IoError{{"weights_unused", name,
                   locate(name) + " has no place in the model that the config describes",
                   "config.json and the weights do not belong together"}};
  }
}

void Weights::release_pages() const {
  for (const auto& file : files_) file->release_pages();
}

int64_t Weights::total_bytes() const {
  int64_t total = 0;
  for (const auto& [name, e] : entries_) {
    total += static_cast<int64_t>(e.tensor->end - e.tensor->begin);
  }
  return total;
}

const std::map<std::string, std::string>& Weights::metadata() const {
  return files_.front()->metadata();
}

}  // namespace mere
