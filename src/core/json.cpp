#include "core/json.h"

#include <charconv>
#include <utility>

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
    fail_member(source, key, "is outside " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value.get<int64_t>();
}

// Builds the tree itself, so that a repeated key and too many levels are seen at no extra cost.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  Json root;
  std::string problem;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return stop("binary value"); }
  bool start_object(size_t) override { return open(Json::value_t::object); }
  bool start_array(size_t) override { return open(Json::value_t::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    auto& members = open_.back()->get_ref<Json::object_t&>();
    const auto [member, is_new] = members.try_emplace(std::move(name));
    if (!is_new) return stop("key \"" + printable(member->first) + "\" appears twice");
    member_ = &member->second;
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& e) override {
    return stop(std::string("not valid JSON: ") + e.what());
  }

 private:
  bool stop(std::string what) {
    problem = std::move(what);
    return false;
  }

  // The new value: the root, the member whose key was just read, or the next item of a list.
  Json& place(Json value) {
    if (open_.empty()) return root = std::move(value);
    if (open_.back()->is_object()) return *member_ = std::move(value);
    return open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json::value_t type) {
    if (open_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      return stop("nested more than " + std::to_string(kMaxJsonDepth) + " deep");
    }
    // Stays valid while it is open: its parent grows only after it is closed.
    open_.push_back(&place(Json(type)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<Json*> open_;
  Json* member_ = nullptr;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  // The parser takes a NUL for the end and would pass over whatever follows.
  if (text.find('\0') != std::string_view::npos) fail(source, "not valid JSON: holds a NUL");
  StrictBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) fail(source, builder.problem);
  return std::move(builder.root);
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

double json_float(float value) {
  char text[32];
  const char* end = std::to_chars(text, text + sizeof text, value).ptr;
  double same = value;
  std::from_chars(text, end, same);
  return same;
}

}  // namespace mere
