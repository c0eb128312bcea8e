// A hand-made tokenizer.json: the 95 printable ASCII characters in byte-level form get ids 0 to 94
// in byte order (space, written \u0120, is 0), then "he" 95, "ll" 96, "hell" 97, "hello" 98 and
// "\u0120hello" 99.
#pragma once

#include <string>

#include "core/json.h"

namespace mere::test {

inline const std::string kSpaceToken = "\u0120";

inline Json tiny_tokenizer() {
  Json vocab = {{kSpaceToken, 0}, {"he", 95}, {"ll", 96}, {"hell", 97}, {"hello", 98}};
  vocab[kSpaceToken + "hello"] = 99;
  for (int c = 0x21; c < 0x7F; ++c) vocab[std::string(1, static_cast<char>(c))] = c - 0x20;
  return {
      {"version", "1.0"},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", vocab},
        {"merges", Json::parse("[[\"h\",\"e\"],[\"l\",\"l\"],[\"he\",\"ll\"],[\"hell\",\"o\"],"
                               "[\"\u0120\",\"hello\"]]")}}},
  };
}

}  // namespace mere::test
