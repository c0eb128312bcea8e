// What the program prints: results on stdout, messages on stderr.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"

namespace mere::cli {

// Keys stay in the order they were set.
using Document = nlohmann::ordered_json;

// Writes a result and flushes; IoError when stdout cannot take it (closed, disk full).
void print_result(std::string_view text);

// The one JSON document of a command with --json. Text that is not UTF-8 (file names) is repaired.
void print_document(const Document& document);

// {"status": "error"|"cancelled", "error": {code, field, message, hint}}.
Document error_document(const ErrorInfo& info, bool cancelled = false);

// True when TERM names a terminal that understands cursor and colour codes: set, and not "dumb".
bool terminal_has_codes();

// True when colour may be used on `stream`: a terminal with codes, and NO_COLOR unset or empty.
bool may_colour(std::FILE* stream);

// "mere.run: error: text" on stderr, the label in colour on a terminal.
void print_error(std::string_view text);

// `text` with control characters replaced, for names that come from files or users.
std::string shown(std::string_view text);

}  // namespace mere::cli
