// Text entries of pictures: character sets, and how a list of entries becomes one text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "media/bytes.h"
#include "media/image.h"

namespace mere::media {

bool is_utf8(std::string_view text);
// `text` with NUL and every ill-formed byte replaced by U+FFFD.
std::string clean_utf8(std::string_view text);
// `text` itself when it is UTF-8, otherwise read as Latin-1; cleaned.
std::string utf8_or_latin1(std::string_view text);

std::string latin1_to_utf8(std::string_view text);
// nullopt when `text` holds a character that PNG tEXt does not allow: outside Latin-1, or a control
// character other than tab and line feed.
std::optional<std::string> utf8_to_latin1(std::string_view text);

std::string utf16_to_utf8(std::string_view bytes, ByteOrder order);
std::string utf8_to_utf16le(std::string_view text);

// A key all three formats can hold: 1 to 79 printable ASCII characters without ':', no space at
// either end and no two in a row.
bool is_text_key(std::string_view key);

// InternalError for a key that is not is_text_key; values cleaned. Done before every encode.
ImageText checked_text(const ImageText& text);

// "key: value" as one JPEG comment holds it; an entry without a key is called "Comment".
std::pair<std::string, std::string> split_entry(std::string_view line);

// All entries as lines "key: value"; a line feed inside a value is followed by a space, as in mail
// headers. split_lines gives the entries back; nullopt when `lines` is not of this form.
std::string join_lines(const ImageText& text);
std::optional<ImageText> split_lines(std::string_view lines);

}  // namespace mere::media
