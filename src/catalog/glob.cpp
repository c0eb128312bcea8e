#include "catalog/glob.h"

#include <algorithm>

namespace mere {

bool glob_match(std::string_view pattern, std::string_view path) {
  // reach[i]: the pattern read so far can stand for the first i bytes of the path.
  std::vector<char> reach(path.size() + 1, 0);
  reach[0] = 1;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const bool crosses = pattern.substr(at).starts_with("**");
    if (crosses) {
      const bool folders = pattern.substr(at).starts_with("**/");
      at += folders ? 2 : 1;
      bool any = false;
      for (size_t i = 0; i <= path.size(); ++i) {
        const bool before = reach[i] != 0;
        // "**/" ends where a folder ends, or stands for nothing.
        if (any && (!folders || path[i - 1] == '/')) reach[i] = 1;
        any = any || before;
      }
    } else if (pattern[at] == '*') {
      for (size_t i = 1; i <= path.size(); ++i) {
        if (reach[i - 1] != 0 && path[i - 1] != '/') reach[i] = 1;
      }
    } else {
      for (size_t i = path.size(); i > 0; --i) {
        const char c = path[i - 1];
        const bool same = pattern[at] == '?' ? c != '/' : c == pattern[at];
        reach[i] = static_cast<char>(reach[i - 1] != 0 && same);
      }
      reach[0] = 0;
    }
  }
  return reach[path.size()] != 0;
}

bool is_selected(const std::vector<std::string>& include, const std::vector<std::string>& exclude,
                 std::string_view path) {
  const auto matches = [&](const std::string& pattern) { return glob_match(pattern, path); };
  if (!include.empty() && std::ranges::none_of(include, matches)) return false;
  return std::ranges::none_of(exclude, matches);
}

}  // namespace mere
