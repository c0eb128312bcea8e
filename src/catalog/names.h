// What ids, repositories, revisions and paths may look like. They come from catalogs, manifests and
// the command line, and become parts of file names and URLs.
#pragma once

#include <string>
#include <string_view>

namespace mere {

// "image-klein-nano": letters, digits, '.', '_' and '-', at most 128 bytes, not beginning with '.'
// or '-'.
bool is_model_id(std::string_view text);

// "owner/name", each of the characters of an id without "--" and "..", at most 96 bytes.
bool is_repository(std::string_view text);

// A commit, a branch or "refs/pr/1": a path of letters, digits, '.', '_' and '-'.
bool is_revision(std::string_view text);

bool is_commit(std::string_view text);     // 40 hexadecimal digits, lower case
bool is_sha256(std::string_view text);     // 64 of them
bool is_blob_name(std::string_view text);  // either

// Why a path is refused; empty when it stays below whatever it is put under: relative, at most 255
// bytes, no part empty, '.' or '..', no backslash, no control character. Links are not looked at.
std::string path_problem(std::string_view path);
bool is_relative_path(std::string_view text);

std::string lower(std::string_view text);    // ASCII letters
std::string trimmed(std::string_view text);  // without blanks at both ends

}  // namespace mere
