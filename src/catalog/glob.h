// File patterns of the catalog, over paths of a repository ("transformer/model.safetensors").
//
//   glob_match("text_encoder/*", "text_encoder/config.json");  // true
//   glob_match("*.json", "text_encoder/config.json");          // false: '*' stays in a folder
//   glob_match("**/*.json", "config.json");                    // true: "**/" is any number of them
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mere {

// The whole of `path` against `pattern`: '*' any bytes but '/', '?' one byte but '/', "**" any
// bytes, "**/" also none at all. Everything else stands for itself, case included. Takes time
// proportional to the product of both lengths, whatever the pattern.
bool glob_match(std::string_view pattern, std::string_view path);

// True when `path` matches one of `include` (or that is empty) and none of `exclude`.
bool is_selected(const std::vector<std::string>& include, const std::vector<std::string>& exclude,
                 std::string_view path);

}  // namespace mere
