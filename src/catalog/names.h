// What ids, repositories, revisions and paths may look like. They come from catalogs, manifests and
// the command line, and become parts of file names and URLs.
#pragma once

#include <string>
#include <string_view>

namespace mere {

// "image-klein-nano": letters, digits, '.', '_' and '-', at most 128 bytes, not beginning with '.'
// or '-'.
bool is_model_id(std::string_view text);

// "owner/name", each of the characters of an id, at most 96 bytes.
bool is_repository(std::string_view text);

// A commit or a branch: the characters of an id, at most 96 bytes.
bool is_revision(std::string_view text);

bool is_commit(std::string_view text);  // 40 hexadecimal digits, lower case
bool is_sha256(std::string_view text);  // 64 of them

// A path that stays below whatever it is put under: relative, at most 512 bytes, no part empty, '.'
// or '..' or longer than 255 bytes, no backslash, no control character. Links are not looked at.
bool is_relative_path(std::string_view text);

std::string lower(std::string_view text);    // ASCII letters
std::string trimmed(std::string_view text);  // without blanks at both ends

}  // namespace mere
