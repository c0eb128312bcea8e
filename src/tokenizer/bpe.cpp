#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <mutex>
#include <queue>
#include <random>
#include <unordered_map>

#include "core/error.h"
#include "tokenizer/byte_level.h"

namespace mere {
namespace {

constexpr size_t kCacheEntries = 20'000;
constexpr size_t kCacheWordBytes = 256;

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw IoError{{"tokenizer_invalid", source, source + ": " + what, ""}};
}

std::string quoted(std::string_view token) { return "\"" + printable(token, 60) + "\""; }

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Finaliser of splitmix64: every bit of the input reaches every bit of the result.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

uint64_t hash_bytes(std::string_view bytes, uint64_t seed) {
  uint64_t hash = seed ^ bytes.size();
  while (bytes.size() >= 8) {
    uint64_t chunk = 0;
    std::memcpy(&chunk, bytes.data(), 8);
    hash = mix(hash ^ chunk);
    bytes.remove_prefix(8);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes.data(), bytes.size());
  return mix(hash ^ rest);
}

// A quarter at least stays free: small tables stay in the cache, and probes stay short.
size_t table_size(size_t entries) { return std::bit_ceil(entries + entries / 3 + 1); }

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
};

}  // namespace

// Words come again and again; their ids are kept until there are too many.
struct Bpe::Cache {
  std::mutex mutex;
  std::unordered_map<std::string, std::vector<int32_t>, StringHash, std::equal_to<>> ids_of_word;
};

Bpe::Bpe(const std::vector<VocabularyEntry>& vocabulary, const std::vector<Merge>& merges,
         bool ignore_merges, const std::string& source)
    : seed_(random_seed()), ignore_merges_(ignore_merges), cache_(std::make_unique<Cache>()) {
  store_tokens(vocabulary, source);
  store_merges(merges, source);
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = id_of(byte_level_characters()[byte]).value_or(-1);
  }
}

Bpe::~Bpe() = default;
Bpe::Bpe(Bpe&&) noexcept = default;
Bpe& Bpe::operator=(Bpe&&) noexcept = default;

void Bpe::store_tokens(const std::vector<VocabularyEntry>& vocabulary, const std::string& source) {
  size_t characters = 0;
  int32_t largest = -1;
  for (const VocabularyEntry& entry : vocabulary) {
    if (entry.id < 0 || entry.id >= kMaxTokens) {
      fail(source, "token " + quoted(entry.token) + " has id " + std::to_string(entry.id) +
                       ", outside 0 to " + std::to_string(kMaxTokens - 1));
    }
    characters += entry.token.size();
    largest = std::max(largest, entry.id);
  }
  // Never reallocated afterwards: tokens_ points into it. One byte more, so that the empty token
  // has an address too.
  characters_.resize(characters + 1);
  tokens_.resize(static_cast<size_t>(largest + 1));
  token_slots_.assign(table_size(vocabulary.size()), {});
  char* next = characters_.data();
  for (const VocabularyEntry& entry : vocabulary) {
    std::string_view& token = tokens_[static_cast<size_t>(entry.id)];
    if (token.data() != nullptr) {
      fail(source, "tokens " + quoted(token) + " and " + quoted(entry.token) + " have one id, " +
                       std::to_string(entry.id));
    }
    const uint64_t hash = hash_bytes(entry.token, seed_);
    TokenSlot& slot = token_slots_[token_slot(entry.token, hash)];
    if (slot.id >= 0) fail(source, "token " + quoted(entry.token) + " appears twice");
    slot = {static_cast<uint32_t>(hash >> 32), entry.id};
    std::copy(entry.token.begin(), entry.token.end(), next);
    token = {next, entry.token.size()};
    next += entry.token.size();
  }
}

void Bpe::store_merges(const std::vector<Merge>& merges, const std::string& source) {
  merge_slots_.assign(table_size(merges.size()), {});
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    joined.assign(left).append(right);
    const std::optional<int32_t> left_id = id_of(left), right_id = id_of(right),
                                 joined_id = id_of(joined);
    if (!left_id || !right_id || !joined_id) {
      const std::string_view missing = !left_id ? left : !right_id ? right : joined;
      fail(source, "merge " + std::to_string(rank) + " needs token " + quoted(missing) +
                       ", which the vocabulary does not have");
    }
    // Of a pair that is listed twice the last one counts, as in the reference.
    merge_slots_[merge_slot(*left_id, *right_id)] = {
        *left_id, *right_id, {static_cast<uint32_t>(rank), *joined_id}};
  }
}

size_t Bpe::token_slot(std::string_view token, uint64_t hash) const {
  const size_t mask = token_slots_.size() - 1;
  const auto upper = static_cast<uint32_t>(hash >> 32);
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    const TokenSlot& found = token_slots_[slot];
    if (found.id < 0) return slot;
    if (found.hash == upper && tokens_[static_cast<size_t>(found.id)] == token) return slot;
  }
}

size_t Bpe::merge_slot(int32_t left, int32_t right) const {
  const size_t mask = merge_slots_.size() - 1;
  const uint64_t pair = (static_cast<uint64_t>(left) << 32) | static_cast<uint32_t>(right);
  size_t slot = mix(pair ^ seed_) & mask;
  while (merge_slots_[slot].left >= 0 &&
         (merge_slots_[slot].left != left || merge_slots_[slot].right != right)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

const Bpe::MergeRule* Bpe::merge_of(int32_t left, int32_t right) const {
  const MergeSlot& slot = merge_slots_[merge_slot(left, right)];
  return slot.left < 0 ? nullptr : &slot.rule;
}

std::optional<int32_t> Bpe::id_of(std::string_view token) const {
  const int32_t id = token_slots_[token_slot(token, hash_bytes(token, seed_))].id;
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<std::string_view> Bpe::token(int32_t id) const {
  if (id < 0 || id >= size()) return std::nullopt;
  const std::string_view token = tokens_[static_cast<size_t>(id)];
  return token.data() == nullptr ? std::nullopt : std::optional(token);
}

bool Bpe::covers_all_bytes() const {
  return std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id >= 0; });
}

std::vector<int32_t> Bpe::merge_word(std::string_view word) const {
  struct Symbol {
    int32_t id;  // -1: joined into its left neighbour
    uint32_t previous;
    uint32_t next;
  };
  constexpr uint32_t kEnd = UINT32_MAX;
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id < 0) continue;
    const auto at = static_cast<uint32_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1});  // the first one's previous wraps to kEnd
  }
  if (symbols.empty()) return {};
  symbols.back().next = kEnd;

  // Candidates as rank << 32 | position of the left symbol. One whose symbols have changed since is
  // recognised by its rank: symbols only grow, so another pair has another rule.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> candidates;
  const auto offer = [&](uint32_t left) {
    if (left == kEnd || symbols[left].next == kEnd) return;
    if (const MergeRule* rule = merge_of(symbols[left].id, symbols[symbols[left].next].id)) {
      candidates.push((uint64_t{rule->rank} << 32) | left);
    }
  };
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) offer(i);
  while (!candidates.empty()) {
    const auto rank = static_cast<uint32_t>(candidates.top() >> 32);
    const auto at = static_cast<uint32_t>(candidates.top());
    candidates.pop();
    Symbol& left = symbols[at];
    if (left.id < 0 || left.next == kEnd) continue;
    Symbol& right = symbols[left.next];
    const MergeRule* rule = merge_of(left.id, right.id);
    if (rule == nullptr || rule->rank != rank) continue;
    left.id = rule->id;
    left.next = right.next;
    right.id = -1;
    if (left.next != kEnd) symbols[left.next].previous = at;
    offer(left.previous);
    offer(at);
  }
  std::vector<int32_t> ids;
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
  return ids;
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const bool cached = word.size() <= kCacheWordBytes;
  if (cached) {
    const std::lock_guard lock(cache_->mutex);
    const auto known = cache_->ids_of_word.find(word);
    if (known != cache_->ids_of_word.end()) {
      ids.insert(ids.end(), known->second.begin(), known->second.end());
      return;
    }
  }
  std::vector<int32_t> found;
  if (ignore_merges_) {
    if (const std::optional<int32_t> whole = id_of(to_byte_level(word))) found = {*whole};
  }
  if (found.empty()) found = merge_word(word);
  ids.insert(ids.end(), found.begin(), found.end());
  if (cached) {
    const std::lock_guard lock(cache_->mutex);
    if (cache_->ids_of_word.size() >= kCacheEntries) cache_->ids_of_word.clear();
    cache_->ids_of_word.try_emplace(std::string(word), std::move(found));
  }
}

}  // namespace mere
