#include "lora/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "lora/peft_config.h"
#include "lora/spellings.h"
#include "tensor/safetensors.h"

namespace mere {
namespace {

constexpr int64_t kMaxRank = 4096;
constexpr size_t kNamesInMessage = 3;

using Entry = std::pair<const std::string, StoredTensor>;

// Storage types an adapter may have, and how a value that is not finite looks in each: all bits of
// the exponent set.
struct FloatRow {
  StoredType stored;
  mx::Dtype dtype;
  bool as_factor;  // A and B; else only alpha
  uint64_t exponent_mask;
};

const FloatRow kFloats[] = {
    {StoredType::kF32, mx::float32, true, 0x7F800000},
    {StoredType::kF16, mx::float16, true, 0x7C00},
    {StoredType::kBF16, mx::bfloat16, true, 0x7F80},
    {StoredType::kF64, mx::float64, false, 0x7FF0000000000000},
};

const FloatRow* find_float(StoredType type) {
  const auto* row = std::ranges::find(kFloats, type, &FloatRow::stored);
  return row == std::end(kFloats) ? nullptr : row;
}

template <typename Word>
bool has_non_finite_words(std::span<const std::byte> bytes, Word mask) {
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof(Word));
    if ((word & mask) == mask) return true;
  }
  return false;
}

bool has_non_finite(std::span<const std::byte> bytes, const FloatRow& row) {
  const size_t width = stored_type_bytes(row.stored);
  if (width == 2) return has_non_finite_words(bytes, static_cast<uint16_t>(row.exponent_mask));
  if (width == 4) return has_non_finite_words(bytes, static_cast<uint32_t>(row.exponent_mask));
  return has_non_finite_words(bytes, row.exponent_mask);
}

// Copies `bytes` into an array of the stored type. The file may hold them at an odd address.
Array copy_array(std::span<const std::byte> bytes, const mx::Shape& shape, mx::Dtype dtype) {
  mx::allocator::Data data = mx::allocator::malloc(bytes.size());
  std::memcpy(data.buffer().raw_ptr(), bytes.data(), bytes.size());
  return Array(std::move(data), shape, dtype);
}

// `shape` as a matrix: dimensions of 1 behind the second (1x1 convolutions) are dropped.
std::optional<std::array<int64_t, 2>> as_matrix(const std::vector<int64_t>& shape) {
  if (shape.size() < 2 ||
      std::any_of(shape.begin() + 2, shape.end(), [](int64_t n) { return n != 1; })) {
    return std::nullopt;
  }
  return std::array{shape[0], shape[1]};
}

std::string quoted_names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kNamesInMessage; ++i) {
    text += i == 0 ? "\"" : ", \"";
    text += printable(names[i], 100);
    text += '"';
  }
  return text;
}

// The names of one model, dotted and as kohya writes them.
class NameIndex {
 public:
  explicit NameIndex(const LoraTargets& targets) {
    for (const LoraAlias& alias : targets.names) by_name_.emplace(alias.name, &alias);
    for (const LoraAlias& alias : targets.names) {
      by_name_.emplace(lora::flat_name(alias.name), &alias);
    }
  }

  const LoraAlias* find(std::string_view module) const {
    for (const std::string_view form : lora::without_prefixes(module)) {
      const auto it = by_name_.find(std::string(form));
      if (it != by_name_.end()) return it->second;
    }
    return nullptr;
  }

 private:
  std::unordered_map<std::string, const LoraAlias*> by_name_;
};

// Rows of an alias that go to one place.
struct Piece {
  const LoraTarget* target;
  int64_t row_offset;  // in the module
  int64_t rows;
  int64_t source_row;  // in the adapter's B
};

struct Layout {
  std::vector<Piece> pieces;
  int64_t out = 0;
  int64_t in = 0;
};

Layout layout_of(const LoraAlias& alias) {
  Layout layout;
  for (const LoraTarget& target : alias.targets) {
    layout.pieces.push_back({&target, target.row_offset, target.rows, layout.out});
    layout.out += target.rows;
    layout.in = target.in;
  }
  if (!alias.swap_halves) return layout;
  const LoraTarget& target = alias.targets.front();
  const int64_t half = layout.out / 2;
  layout.pieces = {{&target, target.row_offset, half, half},
                   {&target, target.row_offset + half, half, 0}};
  return layout;
}

class Reader {
 public:
  Reader(const fs::path& path, const LoraTargets& targets)
      : file_(path), targets_(targets), index_(targets), config_(lora::PeftConfig::of(file_)) {}

  Adapter read() {
    sort_tensors();
    match_modules();
    if (adapter_.applied == 0) refuse_unmatched();
    refuse_other_family();
    for (const auto& [name, module] : modules_) {
      require_both_halves(name, module);
      check_values(module);
      if (module.alias != nullptr) add_deltas(name, module);
    }
    return std::move(adapter_);
  }

 private:
  struct Module {
    const Entry* down = nullptr;
    const Entry* up = nullptr;
    const Entry* alpha = nullptr;
    const LoraAlias* alias = nullptr;
  };

  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const {
    throw IoError{
        {"adapter_damaged", file_.path().string(), file_.path().string() + ": " + what, hint}};
  }
  [[noreturn]] void fail_tensor(const Entry& entry, const std::string& what,
                                const std::string& hint = "") const {
    fail("tensor \"" + printable(entry.first) + "\" " + what, hint);
  }
  [[noreturn]] void refuse(const char* code, const std::string& what,
                           const std::string& hint) const {
    throw UsageError{{code, file_.path().string(), file_.path().string() + ": " + what, hint}};
  }

  void sort_tensors() {
    for (const Entry& entry : file_.tensors()) {
      const std::string_view kind = lora::unsupported_kind(entry.first);
      if (!kind.empty()) {
        refuse("adapter_unsupported",
               "adapter kind " + std::string(kind) + " is not supported (tensor \"" +
                   printable(entry.first) + "\")",
               "use a plain LoRA adapter, or convert this one");
      }
      const std::optional<lora::Key> key = lora::parse_key(entry.first);
      if (!key) {
        adapter_.unmatched.push_back(entry.first);
        continue;
      }
      static constexpr const Entry* Module::*kSlots[] = {&Module::down, &Module::up,
                                                         &Module::alpha};
      const Entry*& slot = modules_[std::string(key->module)].*kSlots[static_cast<int>(key->part)];
      if (slot != nullptr) {
        fail_tensor(entry, "is there a second time as \"" + printable(slot->first) + "\"");
      }
      slot = &entry;
    }
    if (modules_.empty()) {
      refuse("adapter_invalid",
             "not a LoRA adapter: no tensor of it is half of a pair" +
                 (adapter_.unmatched.empty() ? "; it is empty"
                                             : ", e.g. " + quoted_names(adapter_.unmatched)),
             "give a file with lora_A/lora_B or lora_down/lora_up tensors");
    }
  }

  void match_modules() {
    std::unordered_map<const LoraAlias*, std::string_view> taken;
    for (auto& [name, module] : modules_) {
      module.alias = index_.find(name);
      if (module.alias == nullptr) {
        adapter_.unmatched.push_back(name);
        continue;
      }
      const auto [other, first] = taken.emplace(module.alias, name);
      if (!first) {
        fail("modules \"" + printable(other->second) + "\" and \"" + printable(name) +
             "\" are two spellings of one");
      }
      ++adapter_.applied;
    }
    std::ranges::sort(adapter_.unmatched);
    adapter_.total = adapter_.applied + static_cast<int64_t>(adapter_.unmatched.size());
  }

  [[noreturn]] void refuse_unmatched() const {
    const std::string_view family = lora::guess_family(adapter_.unmatched, targets_.family, false);
    refuse("adapter_mismatch",
           "none of its " + std::to_string(adapter_.total) + " modules belongs to " +
               targets_.family +
               (family.empty() ? "" : "; this is an adapter for " + std::string(family)) +
               "; unmatched: " + quoted_names(adapter_.unmatched),
           "use an adapter made for " + targets_.family);
  }

  // Families that share module names with this one would match in part, sometimes with the right
  // shapes, and give a spoiled picture.
  void refuse_other_family() const {
    const std::string_view family = lora::guess_family(adapter_.unmatched, targets_.family, true);
    if (family.empty()) return;
    refuse("adapter_mismatch",
           "this is an adapter for " + std::string(family) + ", not for " + targets_.family + ": " +
               std::to_string(adapter_.unmatched.size()) + " of its " +
               std::to_string(adapter_.total) +
               " modules do not exist; unmatched: " + quoted_names(adapter_.unmatched),
           "use an adapter made for " + targets_.family);
  }

  void require_both_halves(const std::string& name, const Module& module) const {
    if (module.down != nullptr && module.up != nullptr) return;
    if (module.down == nullptr && module.up == nullptr) {
      fail_tensor(*module.alpha, "has no matrices beside it: both halves of module \"" +
                                     printable(name) + "\" are missing");
    }
    const bool no_down = module.down == nullptr;
    fail_tensor(no_down ? *module.up : *module.down,
                std::string("has no partner: the ") + (no_down ? "lora_A (down)" : "lora_B (up)") +
                    " tensor of module \"" + printable(name) + "\" is missing");
  }

  void check_values(const Module& module) const {
    for (const Entry* entry : {module.down, module.up, module.alpha}) {
      if (entry == nullptr) continue;
      const FloatRow* row = find_float(entry->second.type);
      if (row == nullptr || (!row->as_factor && entry != module.alpha)) {
        fail_tensor(*entry, "has dtype " + std::string(stored_type_name(entry->second.type)) +
                                "; F32, F16 or BF16 expected");
      }
      if (has_non_finite(file_.data(entry->second), *row)) {
        fail_tensor(*entry, "holds a value that is not finite (NaN or Inf)");
      }
    }
  }

  double alpha_of(const Entry& entry) const {
    const auto& [type, shape, begin, end] = entry.second;
    if (!shape.empty() && shape != std::vector<int64_t>{1}) {
      fail_tensor(entry, "has shape " + shape_text(shape) + "; an alpha is a single number");
    }
    const auto bytes = file_.data(entry.second);
    if (type == StoredType::kF64) {
      double value;
      std::memcpy(&value, bytes.data(), sizeof(value));
      return value;
    }
    return to_floats(copy_array(bytes, {1}, find_float(type)->dtype)).front();
  }

  // The number the product B A is multiplied with.
  float factor_of(const std::string& name, const Module& module, int64_t rank) const {
    if (module.alpha != nullptr) {
      const auto factor = static_cast<float>(alpha_of(*module.alpha) / static_cast<double>(rank));
      if (!std::isfinite(factor)) fail_tensor(*module.alpha, "is too large");
      return factor;
    }
    const std::optional<double> alpha = config_.alpha(name);
    if (!alpha) return 1.0F;
    const double divisor = static_cast<double>(rank);
    return static_cast<float>(*alpha / (config_.rank_stabilised() ? std::sqrt(divisor) : divisor));
  }

  void add_deltas(const std::string& name, const Module& module) {
    const Layout layout = layout_of(*module.alias);
    const StoredTensor& down = module.down->second;
    const StoredTensor& up = module.up->second;
    static const std::string kSizeHint = "the adapter was made for a model of another size";
    const auto a_shape = as_matrix(down.shape);  // [rank, in]
    if (!a_shape || (*a_shape)[1] != layout.in) {
      fail_tensor(*module.down,
                  "has shape " + shape_text(down.shape) + ", but \"" + module.alias->name +
                      "\" takes [rank, " + std::to_string(layout.in) + "]",
                  kSizeHint);
    }
    const int64_t rank = (*a_shape)[0];
    if (rank < 1 || rank > kMaxRank) {
      fail_tensor(*module.down, "has rank " + std::to_string(rank) + "; 1 to " +
                                    std::to_string(kMaxRank) + " expected");
    }
    const auto b_shape = as_matrix(up.shape);  // [out, rank]
    if (!b_shape || (*b_shape)[0] != layout.out || (*b_shape)[1] != rank) {
      fail_tensor(*module.up,
                  "has shape " + shape_text(up.shape) + ", but \"" + module.alias->name +
                      "\" takes [" + std::to_string(layout.out) + ", " + std::to_string(rank) + "]",
                  b_shape && (*b_shape)[0] == layout.out ? "" : kSizeHint);
    }
    const float factor = factor_of(name, module, rank);
    const Array a =
        copy_array(file_.data(down), {static_cast<int>(rank), static_cast<int>(layout.in)},
                   find_float(down.type)->dtype);
    const size_t row_bytes = static_cast<size_t>(rank) * stored_type_bytes(up.type);
    for (const Piece& piece : layout.pieces) {
      const auto rows = file_.data(up).subspan(static_cast<size_t>(piece.source_row) * row_bytes,
                                               static_cast<size_t>(piece.rows) * row_bytes);
      const Array b = copy_array(rows, {static_cast<int>(piece.rows), static_cast<int>(rank)},
                                 find_float(up.type)->dtype);
      adapter_.deltas[piece.target->module].push_back({a, b, factor, piece.row_offset, piece.rows});
    }
  }

  SafetensorsFile file_;
  const LoraTargets& targets_;
  NameIndex index_;
  lora::PeftConfig config_;
  std::map<std::string, Module> modules_;
  Adapter adapter_;
};

}  // namespace

Adapter read_adapter(const fs::path& path, const LoraTargets& targets) {
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) {
    const bool exists = fs::exists(path, ec);
    throw UsageError{{"adapter_missing", path.string(),
                      path.string() + (exists ? ": not a file" : ": no such adapter file"),
                      "give the path of a .safetensors file"}};
  }
  return Reader(path, targets).read();
}

}  // namespace mere
