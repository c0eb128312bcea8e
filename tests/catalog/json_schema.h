// The part of JSON Schema that the schemas of this repository use, enough to hold documents against
// them: type, required, properties, additionalProperties false, items, $ref into $defs, limits.
#pragma once

#include <regex>
#include <string>

#include "core/json.h"

namespace mere {

// What is wrong with `value` by `schema`, with its place; empty when nothing is.
inline std::string schema_problem(const Json& value, const Json& schema, const Json& top,
                                  const std::string& at = "") {
  if (schema.contains("$ref")) {
    const std::string ref = schema["$ref"];
    return schema_problem(value, top.at(Json::json_pointer(ref.substr(1))), top, at);
  }
  const std::string type = schema.value("type", "");
  const bool fits =
      type.empty() || (type == "object" && value.is_object()) ||
      (type == "array" && value.is_array()) || (type == "string" && value.is_string()) ||
      (type == "boolean" && value.is_boolean()) ||
      (type == "integer" && value.is_number_integer()) || (type == "number" && value.is_number());
  if (!fits) return at + " is no " + type;
  if (value.is_number()) {
    if (schema.contains("minimum") && value < schema["minimum"]) return at + " is too small";
    if (schema.contains("maximum") && value > schema["maximum"]) return at + " is too large";
  }
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (text.size() < schema.value("minLength", size_t{0})) return at + " is too short";
    if (text.size() > schema.value("maxLength", size_t{1} << 20)) return at + " is too long";
    if (schema.contains("pattern") &&
        !std::regex_search(text, std::regex(schema["pattern"].get<std::string>()))) {
      return at + " does not match its pattern: " + text;
    }
  }
  if (value.is_array()) {
    if (value.size() > schema.value("maxItems", size_t{1} << 20)) return at + " is too long";
    for (size_t i = 0; schema.contains("items") && i < value.size(); ++i) {
      const std::string where = at + "/" + std::to_string(i);
      if (auto problem = schema_problem(value[i], schema["items"], top, where); !problem.empty()) {
        return problem;
      }
    }
  }
  if (value.is_object()) {
    for (const Json& key : schema.value("required", Json::array())) {
      if (!value.contains(key.get<std::string>())) return at + " has no " + key.dump();
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [key, member] : value.items()) {
      if (!properties.contains(key)) {
        if (schema.value("additionalProperties", true)) continue;
        return at + " has the unknown key " + key;
      }
      if (auto problem = schema_problem(member, properties[key], top, at + "/" + key);
          !problem.empty()) {
        return problem;
      }
    }
  }
  return {};
}

}  // namespace mere
