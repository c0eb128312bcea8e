#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace mere {
namespace {

constexpr size_t kMaxSteps = 16;

// The words of GPT-2, used by ByteLevel with use_regex.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw IoError{{"tokenizer_unsupported", source, source + ": pre-tokenizer " + what, ""}};
}

}  // namespace

PreTokenizer::Step PreTokenizer::parse_split(const Json& json, const std::string& source) {
  static constexpr std::array<std::pair<std::string_view, Behavior>, 5> kBehaviors = {{
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous},
  }};
  Step step;
  const std::string name = json_string_or(json, "behavior", "", source);
  const auto* known = std::find_if(kBehaviors.begin(), kBehaviors.end(),
                                   [&](const auto& entry) { return entry.first == name; });
  if (known == kBehaviors.end()) {
    refuse(source, "Split: behavior \"" + printable(name) + "\" is not supported");
  }
  step.behavior = known->second;
  step.invert = json_bool_or(json, "invert", false, source);

  const auto pattern = json.find("pattern");
  if (pattern == json.end() || !pattern->is_object() || pattern->size() != 1) {
    refuse(source, "Split: \"pattern\" is neither a Regex nor a String");
  }
  const std::string kind = pattern->begin().key();
  if ((kind != "Regex" && kind != "String") || !pattern->begin()->is_string()) {
    refuse(source, "Split: \"pattern\" is neither a Regex nor a String");
  }
  const std::string text = json_string_or(*pattern, kind.c_str(), "", source);
  // An empty String pattern is found nowhere; an empty Regex is found everywhere.
  if (kind == "String" && text.empty()) return step;
  step.regex.emplace(text, kind == "Regex" ? Regex::Syntax::kPattern : Regex::Syntax::kLiteral,
                     source);
  return step;
}

PreTokenizer::Step PreTokenizer::parse_byte_level(const Json& json, const std::string& source) {
  Step step;
  if (!json.contains("add_prefix_space")) {
    refuse(source, "ByteLevel: \"add_prefix_space\" is missing");
  }
  step.add_prefix_space = json_bool_or(json, "add_prefix_space", false, source);
  if (json_bool_or(json, "use_regex", true, source)) {
    step.regex.emplace(kGpt2Pattern, Regex::Syntax::kPattern, source);
  }
  return step;
}

PreTokenizer PreTokenizer::parse(const Json& json, const std::string& source) {
  if (!json.is_object()) refuse(source, "is missing; only byte-level tokenizers are supported");
  const std::string type = json_string_or(json, "type", "", source);
  Json::array_t members{json};
  if (type == "Sequence") {
    const auto list = json.find("pretokenizers");
    if (list == json.end() || !list->is_array() || list->size() > kMaxSteps) {
      refuse(source, "Sequence: \"pretokenizers\" is not a short list");
    }
    members = list->get<Json::array_t>();
  }
  PreTokenizer out;
  bool has_byte_level = false;
  for (const Json& member : members) {
    const std::string kind = json_string_or(member, "type", "", source);
    if (has_byte_level) refuse(source, "\"" + printable(kind) + "\" comes after ByteLevel");
    if (kind == "Split") {
      out.steps_.push_back(parse_split(member, source));
    } else if (kind == "ByteLevel") {
      out.steps_.push_back(parse_byte_level(member, source));
      has_byte_level = true;
    } else {
      refuse(source, "\"" + printable(kind) + "\" is not supported");
    }
  }
  if (!has_byte_level) refuse(source, "has no ByteLevel; only byte-level tokenizers are supported");
  return out;
}

// Matches and what lies between them, in order, covering the whole word.
std::vector<PreTokenizer::Part> PreTokenizer::parts_of(const Step& step, std::string_view word) {
  if (!step.regex) return {{0, word.size(), step.invert}};
  std::vector<Part> parts;
  size_t done = 0;
  for (const Regex::Span& span : step.regex->matches(word)) {
    if (span.begin > done) parts.push_back({done, span.begin, step.invert});
    parts.push_back({span.begin, span.end, !step.invert});
    done = span.end;
  }
  if (done < word.size()) parts.push_back({done, word.size(), step.invert});
  return parts;
}

std::vector<PreTokenizer::Part> PreTokenizer::merged(std::vector<Part> parts, Behavior behavior) {
  if (behavior == Behavior::kIsolated) return parts;
  if (behavior == Behavior::kRemoved) {
    std::erase_if(parts, [](const Part& part) { return part.is_match; });
    return parts;
  }
  // With the next one is with the previous one, seen from the end.
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  std::vector<Part> out;
  bool after_match = false;
  for (const Part& part : parts) {
    const bool joins = behavior == Behavior::kContiguous ? part.is_match == after_match
                                                         : part.is_match && !after_match;
    if (joins && !out.empty()) {
      out.back().begin = std::min(out.back().begin, part.begin);
      out.back().end = std::max(out.back().end, part.end);
    } else {
      out.push_back(part);
    }
    after_match = part.is_match;
  }
  if (backwards) std::reverse(out.begin(), out.end());
  return out;
}

Words PreTokenizer::split(std::string_view text) const {
  Words words;
  if (!text.empty()) words.views.push_back(text);
  for (const Step& step : steps_) {
    std::vector<std::string_view> next;
    for (std::string_view word : words.views) {
      if (step.add_prefix_space && word.front() != ' ') {
        word = words.owned.emplace_back(" ").append(word);
      }
      for (const Part& part : merged(parts_of(step, word), step.behavior)) {
        if (part.end > part.begin) next.push_back(word.substr(part.begin, part.end - part.begin));
      }
    }
    words.views = std::move(next);
  }
  return words;
}

}  // namespace mere
