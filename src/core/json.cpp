#include "core/json.h"

#include <set>

#include "core/error.h"

namespace mere {
namespace {

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw IoError{{"json_invalid", source, source + ": " + what, ""}};
}

[[noreturn]] void fail_member(const std::string& source, const char* key, const std::string& what) {
  fail(source, std::string("\"") + key + "\" " + what);
}

const Json* find(const Json& json, const char* key, const std::string& source) {
  if (!json.is_object()) fail(source, "not a JSON object");
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}

int64_t checked_int(const Json& value, const char* key, int64_t low, int64_t high,
                    const std::string& source) {
  if (!value.is_number_integer()) fail_member(source, key, "is not an integer");
  const bool too_large =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (too_large || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    fail_member(source, key,
                "is outside " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value.get<int64_t>();
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  std::vector<std::set<std::string>> keys_of_open_objects;
  std::string problem;
  const Json::parser_callback_t check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (!problem.empty()) return false;
    if (depth > kMaxJsonDepth) problem = "nested more than " + std::to_string(kMaxJsonDepth) + " deep";
    if (event == Json::parse_event_t::object_start) keys_of_open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_of_open_objects.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys_of_open_objects.back().insert(parsed.get<std::string>()).second) {
      problem = "key \"" + printable(parsed.get<std::string>()) + "\" appears twice";
    }
    return problem.empty();
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception& e) {
    if (problem.empty()) problem = std::string("not valid JSON: ") + e.what();
  }
  if (!problem.empty()) fail(source, problem);
  return json;
}

Json parse_json_file(const fs::path& path, size_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

int64_t json_int(const Json& json, const char* key, int64_t low, int64_t high,
                 const std::string& source) {
  const Json* value = find(json, key, source);
  if (value == nullptr) fail_member(source, key, "is missing");
  return checked_int(*value, key, low, high, source);
}

int64_t json_int_or(const Json& json, const char* key, int64_t low, int64_t high, int64_t fallback,
                    const std::string& source) {
  const Json* value = find(json, key, source);
  return value == nullptr ? fallback : checked_int(*value, key, low, high, source);
}

double json_number_or(const Json& json, const char* key, double low, double high, double fallback,
                      const std::string& source) {
  const Json* value = find(json, key, source);
  if (value == nullptr) return fallback;
  if (!value->is_number()) fail_member(source, key, "is not a number");
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) fail_member(source, key, "is out of range");
  return number;
}

bool json_bool_or(const Json& json, const char* key, bool fallback, const std::string& source) {
  const Json* value = find(json, key, source);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail_member(source, key, "is not true or false");
  return value->get<bool>();
}

std::string json_string_or(const Json& json, const char* key, const std::string& fallback,
                           const std::string& source) {
  const Json* value = find(json, key, source);
  if (value == nullptr) return fallback;
  if (!value->is_string()) fail_member(source, key, "is not a string");
  return value->get<std::string>();
}

std::optional<std::vector<int64_t>> json_ints(const Json& json, const char* key, int64_t low,
                                              int64_t high, const std::string& source) {
  const Json* value = find(json, key, source);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() || value->size() > 1024) fail_member(source, key, "is not a short list");
  std::vector<int64_t> out;
  for (const Json& item : *value) out.push_back(checked_int(item, key, low, high, source));
  return out;
}

}  // namespace mere
