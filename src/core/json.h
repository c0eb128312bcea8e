// JSON at the edge: bounded parsing of outside bytes, and typed access that names file and field.
//
//   const Json config = parse_json_file(dir / "config.json");
//   const int64_t heads = json_int(config, "num_attention_heads", 1, 1024, config_path);
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"

namespace mere {

using Json = nlohmann::json;

inline constexpr size_t kMaxJsonBytes = size_t{64} << 20;
inline constexpr int kMaxJsonDepth = 64;

// Parses `text`; IoError naming `source` on a syntax error, more than kMaxJsonDepth levels, or a
// key that appears twice in one object.
Json parse_json(std::string_view text, const std::string& source);
Json parse_json_file(const fs::path& path, size_t max_bytes = kMaxJsonBytes);

// Members of object `json`. The required forms throw IoError when the member is missing, of another
// type, or outside [low, high]; the `_or` forms take `fallback` when it is missing or null.
int64_t json_int(const Json& json, const char* key, int64_t low, int64_t high,
                 const std::string& source);
int64_t json_int_or(const Json& json, const char* key, int64_t low, int64_t high, int64_t fallback,
                    const std::string& source);
double json_number_or(const Json& json, const char* key, double low, double high, double fallback,
                      const std::string& source);
bool json_bool_or(const Json& json, const char* key, bool fallback, const std::string& source);
std::string json_string_or(const Json& json, const char* key, const std::string& fallback,
                           const std::string& source);
// Array of integers in [low, high], at most 1024 of them; nullopt when missing or null.
std::optional<std::vector<int64_t>> json_ints(const Json& json, const char* key, int64_t low,
                                              int64_t high, const std::string& source);

// `value` as the double with the same shortest text, so that 1.2F is written as 1.2.
double json_float(float value);

}  // namespace mere
