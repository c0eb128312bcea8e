#include "tokenizer/bpe.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>

#include "tokenizer/byte_level.h"

namespace mere {
namespace {

// The definition, word for word: join the best pair, leftmost first, until there is none.
std::vector<int32_t> slow_merge(std::vector<std::string> symbols,
                                const std::map<std::pair<std::string, std::string>, int>& ranks,
                                const std::map<std::string, int32_t>& ids) {
  for (;;) {
    int best = -1;
    size_t where = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rank = ranks.find({symbols[i], symbols[i + 1]});
      if (rank != ranks.end() && (best < 0 || rank->second < best)) {
        best = rank->second;
        where = i;
      }
    }
    if (best < 0) break;
    symbols[where] += symbols[where + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  std::vector<int32_t> out;
  for (const std::string& symbol : symbols) out.push_back(ids.at(symbol));
  return out;
}

TEST(Bpe, AgreesWithTheDefinitionOnRandomMerges) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::map<std::string, int32_t> ids = {{"a", 0}, {"b", 1}, {"c", 2}};
    std::map<std::pair<std::string, std::string>, int> ranks;
    std::vector<std::pair<std::string, std::string>> pairs;
    for (int i = 0; i < 12; ++i) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (!ranks.emplace(std::pair(left, right), static_cast<int>(pairs.size())).second) continue;
      pairs.emplace_back(left, right);
      if (ids.emplace(left + right, static_cast<int32_t>(ids.size())).second) {
        tokens.push_back(left + right);
      }
    }
    std::shuffle(pairs.begin(), pairs.end(), random);
    std::vector<VocabularyEntry> vocabulary;
    for (const auto& [token, id] : ids) vocabulary.push_back({token, id});
    std::vector<Bpe::Merge> merges;
    for (size_t i = 0; i < pairs.size(); ++i) {
      merges.emplace_back(pairs[i].first, pairs[i].second);
      ranks[pairs[i]] = static_cast<int>(i);
    }
    const Bpe bpe(vocabulary, merges, false, "random");
    for (int word = 0; word < 40; ++word) {
      std::string text;
      std::vector<std::string> symbols;
      for (size_t i = 0, n = random() % 30; i < n; ++i) {
        text += static_cast<char>('a' + random() % 3);
        symbols.emplace_back(1, text.back());
      }
      std::vector<int32_t> got;
      bpe.encode(text, got);
      EXPECT_EQ(got, slow_merge(symbols, ranks, ids)) << text;
    }
  }
}

TEST(Bpe, LooksTokensUp) {
  const Bpe bpe({{"a", 0}, {"", 3}, {"b", 7}}, {}, false, "test");
  EXPECT_EQ(bpe.id_of("b"), 7);
  EXPECT_EQ(bpe.id_of(""), 3);
  EXPECT_EQ(bpe.id_of("c"), std::nullopt);
  EXPECT_EQ(bpe.token(7), "b");
  EXPECT_EQ(bpe.token(3), "");
  EXPECT_EQ(bpe.token(1), std::nullopt);
  EXPECT_EQ(bpe.token(8), std::nullopt);
  EXPECT_EQ(bpe.token(-1), std::nullopt);
  EXPECT_EQ(bpe.size(), 8);
  EXPECT_FALSE(bpe.covers_all_bytes());
}

TEST(Bpe, ManyThreadsShareOne) {
  const Bpe bpe({{"a", 0}, {"b", 1}, {"ab", 2}}, {{"a", "b"}}, false, "test");
  const auto work = [&] {
    for (int i = 0; i < 30'000; ++i) {
      std::vector<int32_t> ids;
      std::string word;
      for (int n = i; n > 0; n /= 2) word += n % 2 == 0 ? "ab" : "b";
      bpe.encode(word, ids);
      size_t bytes = 0;
      for (const int32_t id : ids) bytes += id == 2 ? 2 : 1;
      ASSERT_EQ(bytes, word.size());
    }
  };
  std::thread other(work);
  work();
  other.join();
}

TEST(ByteLevel, WritesEveryByteAsOneVisibleCharacter) {
  EXPECT_EQ(to_byte_level(" \n"), "\u0120\u010a");
  EXPECT_EQ(to_byte_level("\xad"), "\u0143");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(from_byte_level(to_byte_level(all)), all);
  EXPECT_EQ(from_byte_level("a b"), std::nullopt);
  EXPECT_EQ(from_byte_level("\u4e2d"), std::nullopt);
}

}  // namespace
}  // namespace mere
