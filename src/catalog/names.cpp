#include "catalog/names.h"

#include <algorithm>

namespace mere {
namespace {

constexpr size_t kMaxPathBytes = 255;  // what resolve_inside() takes

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_name(std::string_view text, size_t max_bytes) {
  return !text.empty() && text.size() <= max_bytes && text[0] != '.' && text[0] != '-' &&
         std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-';
         });
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

bool is_model_id(std::string_view text) { return is_name(text, 128); }

bool is_repository(std::string_view text) {
  const size_t slash = text.find('/');
  // "--" separates owner and name in folders of the hub cache.
  const auto is_part = [](std::string_view part) {
    return is_name(part, 96) && part.find("..") == part.npos && part.find("--") == part.npos;
  };
  return slash != text.npos && is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

bool is_revision(std::string_view text) {
  return path_problem(text).empty() && text[0] != '-' && std::ranges::all_of(text, [](char c) {
           return is_letter_or_digit(c) ||
                  std::string_view("-_./").find(c) != std::string_view::npos;
         });
}

bool is_commit(std::string_view text) { return is_hex(text, 40); }

bool is_blob_name(std::string_view text) { return is_commit(text) || is_sha256(text); }

bool is_sha256(std::string_view text) { return is_hex(text, 64); }

std::string path_problem(std::string_view path) {
  if (path.empty()) return "is empty";
  if (path.size() > kMaxPathBytes) return "is longer than 255 bytes";
  if (path.front() == '/') return "is absolute";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 32 || byte == 127) return "holds control characters";
    if (c == '\\') return "holds a backslash";
  }
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty()) return "holds an empty part";
    if (part == "." || part == "..") return "leaves its folder";
    start = end + 1;
  }
  return {};
}

bool is_relative_path(std::string_view text) { return path_problem(text).empty(); }

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

}  // namespace mere
