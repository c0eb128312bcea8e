#include "cli/option_values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "core/error.h"

namespace mere::cli {
namespace {

[[noreturn]] void refuse(const char* field, const std::string& text, const std::string& wanted) {
  throw UsageError{{"value_invalid", field,
                    std::string(field) + ": \"" + printable(text, 60) + "\" is not " + wanted, ""}};
}

// The whole of `text` as a number, or false.
template <typename Number>
bool parse_whole(std::string_view text, Number& number) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size();
}

template <typename Number>
std::string shortest_text(Number number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

int64_t parse_int(const std::string& text, const char* field) {
  int64_t number = 0;
  if (!parse_whole(text, number)) refuse(field, text, "a whole number");
  return number;
}

uint64_t parse_seed(const std::string& text, const char* field) {
  uint64_t number = 0;
  if (!parse_whole(text, number)) {
    refuse(field, text, "a whole number from 0 to 18446744073709551615");
  }
  return number;
}

double parse_number(const std::string& text, const char* field) {
  double number = 0;
  if (!parse_whole(text, number) || !std::isfinite(number)) refuse(field, text, "a number");
  return number;
}

double parse_number_within(const std::string& text, double low, double high, const char* field) {
  const double number = parse_number(text, field);
  if (number >= low && number <= high) return number;
  throw UsageError{{"value_out_of_range", field,
                    std::string(field) + " must be from " + number_text(low) + " to " +
                        number_text(high) + ", not " + printable(text, 60),
                    ""}};
}

std::string number_text(float number) { return shortest_text(number); }
std::string number_text(double number) { return shortest_text(number); }

std::vector<double> parse_numbers(const std::string& text, const char* field) {
  std::vector<double> numbers;
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    numbers.push_back(parse_number(std::string(trimmed(rest.substr(0, comma))), field));
    if (comma == std::string_view::npos) return numbers;
    rest.remove_prefix(comma + 1);
  }
}

int64_t parse_memory(const std::string& text, const char* field) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr Unit kUnits[] = {
      {"", 1},
      {"b", 1},
      {"kb", 1e3},
      {"mb", 1e6},
      {"gb", 1e9},
      {"tb", 1e12},
      {"k", 1e3},
      {"m", 1e6},
      {"g", 1e9},
      {"t", 1e12},
      {"kib", 1024.0},
      {"mib", 1048576.0},
      {"gib", 1073741824.0},
      {"tib", 1099511627776.0},
  };
  const size_t end = text.find_first_not_of("0123456789.");
  double number = 0;
  std::string unit(trimmed(end == std::string::npos ? "" : std::string_view(text).substr(end)));
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto* known = std::ranges::find(kUnits, unit, &Unit::name);
  if (!parse_whole(std::string_view(text).substr(0, end), number) || known == std::end(kUnits)) {
    refuse(field, text, "an amount of memory such as 8GB or 512MB");
  }
  const double bytes = number * known->bytes;
  if (!(bytes >= 1 && bytes < 9e18))
    refuse(field, text, "an amount of memory this machine can have");
  return static_cast<int64_t>(bytes);
}

LoraRequest parse_lora(const std::string& text, const char* field) {
  if (text.empty()) refuse(field, text, "the path of an adapter");
  std::error_code ec;
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || fs::exists(text, ec)) return {text, 1.0F};
  if (equals == 0) refuse(field, text, "PATH or PATH=SCALE");
  const double scale =
      parse_number_within(text.substr(equals + 1), -kMaxLoraScale, kMaxLoraScale, field);
  return {text.substr(0, equals), static_cast<float>(scale)};
}

Precision parse_precision(const std::string& text, const char* field) {
  if (text == "auto") return Precision::kAuto;
  if (text == "f32") return Precision::kFloat32;
  refuse(field, text, "auto or f32");
}

std::string non_empty(const std::string& text, const char* field) {
  if (text.empty()) {
    throw UsageError{{"value_invalid", field, std::string(field) + " is empty", ""}};
  }
  return text;
}

}  // namespace mere::cli
