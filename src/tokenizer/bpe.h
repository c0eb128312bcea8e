// Byte pair encoding: from the bytes of a word to token ids.
//
// A word starts as one symbol per byte; the pair of neighbours that comes first in the list of
// merges is joined, leftmost first, until no pair is in the list. A heap over a linked list keeps a
// word of n bytes at O(n log n). Source: Sennrich et al. 2016, arXiv 1508.07909.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mere {

// Ids and counts above this are not a tokenizer: the largest published vocabularies have 260,000.
inline constexpr int64_t kMaxTokens = int64_t{1} << 21;

struct VocabularyEntry {
  std::string_view token;
  int32_t id;
};

class Bpe {
 public:
  using Merge = std::pair<std::string_view, std::string_view>;

  // Tokens and merges are written in the byte-level alphabet. IoError naming `source` on an id that
  // is out of range or used twice, a token listed twice, or a merge of unknown tokens.
  Bpe(const std::vector<VocabularyEntry>& vocabulary, const std::vector<Merge>& merges,
      bool ignore_merges, const std::string& source);
  ~Bpe();
  Bpe(Bpe&&) noexcept;
  Bpe& operator=(Bpe&&) noexcept;

  // Appends the ids of a word of raw bytes. A byte that the vocabulary cannot write is left out, as
  // in the reference. Safe to call from several threads.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  std::optional<std::string_view> token(int32_t id) const;
  // One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  // Whether the vocabulary can write every byte.
  bool covers_all_bytes() const;

 private:
  struct Cache;
  struct MergeRule {
    uint32_t rank;
    int32_t id;  // of the joined token
  };
  struct MergeSlot {
    int32_t left = -1;  // -1: free
    int32_t right = -1;
    MergeRule rule{};
  };

  struct TokenSlot {
    uint32_t hash = 0;  // upper half, to pass over most other tokens without a look at their text
    int32_t id = -1;    // -1: free
  };

  void store_tokens(const std::vector<VocabularyEntry>& vocabulary, const std::string& source);
  void store_merges(const std::vector<Merge>& merges, const std::string& source);
  size_t token_slot(std::string_view token, uint64_t hash) const;
  size_t merge_slot(int32_t left, int32_t right) const;
  const MergeRule* merge_of(int32_t left, int32_t right) const;
  std::vector<int32_t> merge_word(std::string_view word) const;

  // Hash tables with open addressing: a vocabulary is built once, in milliseconds, and only read
  // afterwards. The seed differs between runs so that no file can be made to collide.
  uint64_t seed_;
  std::vector<char> characters_;          // of all tokens
  std::vector<std::string_view> tokens_;  // by id, into characters_; data() null where unused
  std::vector<TokenSlot> token_slots_;
  std::vector<MergeSlot> merge_slots_;
  std::array<int32_t, 256> byte_ids_{};  // -1 where the vocabulary has no such character
  bool ignore_merges_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace mere
