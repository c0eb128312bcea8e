#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <pcre2.h>

#include "core/error.h"
#include "tokenizer/utf8.h"

namespace mere {
namespace {

constexpr size_t kMaxPatternBytes = 16 << 10;
// Backtracking steps of one match: a real pattern needs a few per character it takes.
constexpr size_t kStepsPerByte = 64;
constexpr size_t kMinSteps = 100'000;
constexpr uint32_t kMaxHeapKib = 64 << 10;
constexpr size_t kJitStackStart = 32 << 10;
// Address space; memory is taken as a match needs it.
constexpr size_t kJitStackMax = 64 << 20;

// Property White_Space, as the inside of a class. PCRE2's own \s adds U+180E. A property comes last
// so that a hyphen after it stays a hyphen.
constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Escapes with another meaning, or none, in Oniguruma.
constexpr std::string_view kRefusedEscapes = "hHvVRXKGCNbBQEW";

[[noreturn]] void refuse(const std::string& source, const std::string& why) {
  throw IoError{{"tokenizer_unsupported", source, source + ": pre-tokenizer pattern: " + why, ""}};
}

// Whether "(?" at `at` starts inline flags with m, which is "dot matches newline" in one dialect
// and
// "^ matches after newlines" in the other.
bool sets_flag_m(std::string_view pattern, size_t at) {
  if (pattern.substr(at, 2) != "(?") return false;
  const size_t end = pattern.find_first_not_of("imsx-", at + 2);
  return pattern.substr(at, end == std::string_view::npos ? end : end - at).find('m') !=
         std::string_view::npos;
}

std::string with_oniguruma_meaning(std::string_view pattern, const std::string& source) {
  std::string out;
  bool in_class = false;
  size_t class_start = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out.append(in_class ? "" : "[").append(kSpace).append(in_class ? "" : "]");
      } else if (escaped == 'w') {
        out.append(in_class ? "" : "[").append(kWord).append(in_class ? "" : "]");
      } else if (escaped == 'S') {
        if (in_class) {
          out.append(R"(\S\x{180e})");
        } else {
          out.append("[^").append(kSpace).append("]");
        }
      } else if (escaped == 'W' && !in_class) {
        out.append("[^").append(kWord).append("]");
      } else if (escaped == 'u' && i + 4 < pattern.size()) {
        out.append(R"(\x{)").append(pattern.substr(i + 1, 4)).append("}");
        i += 4;
      } else if (kRefusedEscapes.find(escaped) != std::string_view::npos) {
        refuse(source, std::string("\\") + escaped + " is not supported");
      } else {
        out.append({c, escaped});
      }
      continue;
    }
    if (in_class) {
      if (c == '[' && pattern.substr(i, 2) != "[:") refuse(source, "a class inside a class");
      if (pattern.substr(i, 2) == "&&") refuse(source, "an intersection of classes");
      // A ] that comes first is a member.
      if (c == ']' && i != class_start) in_class = false;
      if (pattern.substr(i, 2) == "[:") {
        const size_t end = pattern.find(":]", i);
        if (end == std::string_view::npos) refuse(source, "an unfinished class");
        out.append(pattern.substr(i, end + 2 - i));
        i = end + 1;
        continue;
      }
    } else if (c == '[') {
      in_class = true;
      class_start = i + (pattern.substr(i + 1, 1) == "^" ? 2 : 1);
    } else if (sets_flag_m(pattern, i)) {
      refuse(source, "the inline flag m is not supported");
    }
    out += c;
  }
  return out;
}

struct MatchDataDeleter {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct CompileContextDeleter {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};
struct JitStackDeleter {
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

void need(const void* p) {
  if (p == nullptr) throw ResourceError{{"memory", "", "no memory for a regular expression", ""}};
}

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* p) : compiled(p) {}
  ~Code() { pcre2_code_free(compiled); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* compiled;
};

Regex::Regex(std::string_view pattern, Syntax syntax, const std::string& source) : source_(source) {
  if (pattern.size() > kMaxPatternBytes) refuse(source, "longer than 16 KiB");
  const std::string text =
      syntax == Syntax::kLiteral ? std::string(pattern) : with_oniguruma_meaning(pattern, source);
  const std::unique_ptr<pcre2_compile_context, CompileContextDeleter> context(
      pcre2_compile_context_create(nullptr));
  need(context.get());
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const uint32_t options = PCRE2_UTF | (syntax == Syntax::kLiteral ? PCRE2_LITERAL
                                                                   : PCRE2_UCP | PCRE2_MULTILINE |
                                                                         PCRE2_NEVER_BACKSLASH_C);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                       options, &error, &offset, context.get());
  if (compiled == nullptr) {
    std::array<PCRE2_UCHAR, 200> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    refuse(source, reinterpret_cast<const char*>(message.data()));
  }
  code_ = std::make_shared<const Code>(compiled);
  // Without it (no support, memory that may not be executable) matching is interpreted: slower,
  // same result.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
}

std::vector<Regex::Span> Regex::matches(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create_from_pattern(code_->compiled, nullptr));
  const std::unique_ptr<pcre2_match_context, MatchContextDeleter> context(
      pcre2_match_context_create(nullptr));
  const std::unique_ptr<pcre2_jit_stack, JitStackDeleter> stack(
      pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
  need(data.get());
  need(context.get());
  if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  const size_t steps = std::min<size_t>(std::numeric_limits<int32_t>::max(),
                                        std::max(kMinSteps, text.size() * kStepsPerByte));
  pcre2_set_match_limit(context.get(), static_cast<uint32_t>(steps));
  pcre2_set_heap_limit(context.get(), kMaxHeapKib);

  std::vector<Span> out;
  std::optional<size_t> last_end;
  for (size_t start = 0; start <= text.size();) {
    const auto run = [&](uint32_t options) {
      return pcre2_match(code_->compiled, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                         start, options, data.get(), context.get());
    };
    // The text is valid: checking it again at every match would be quadratic.
    int result = run(PCRE2_NO_UTF_CHECK);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      throw IoError{{"tokenizer_pattern_too_slow", source_,
                     source_ + ": the pre-tokenizer pattern needs too many steps on this text",
                     "use a tokenizer.json of a published model"}};
    }
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
    const Span span{found[0], found[1]};
    if (span.begin < start || span.end < span.begin || span.end > text.size()) {
      refuse(source_, "it moves the start of a match");
    }
    if (span.begin == span.end && last_end == span.end) {
      if (span.end >= text.size()) break;
      start = span.end + code_point_at(text, span.end).bytes;
      continue;
    }
    out.push_back(span);
    last_end = span.end;
    start = span.end;
  }
  return out;
}

}  // namespace mere
