#include "tokenizer/normalizer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utf8proc.h>
#include <utility>

#include "core/error.h"
#include "tokenizer/utf8.h"

namespace mere {
namespace {

constexpr size_t kMaxForms = 16;
// The longest compatibility decomposition is 18 code points (U+FDFA).
constexpr size_t kMaxDecomposition = 32;

// Sorts each run of combining marks by class. The library's own ordering is quadratic in the length
// of a run, which a hostile text makes as long as it likes.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto mark_class = [](utf8proc_int32_t point) {
    return utf8proc_get_property(point)->combining_class;
  };
  for (auto start = points.begin(); start != points.end();) {
    if (mark_class(*start) == 0) {
      ++start;
      continue;
    }
    const auto end =
        std::find_if(start, points.end(), [&](utf8proc_int32_t p) { return mark_class(p) == 0; });
    std::stable_sort(start, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return mark_class(a) < mark_class(b);
    });
    start = end;
  }
}

std::string normal_form(std::string_view text, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  std::array<utf8proc_int32_t, kMaxDecomposition> parts{};
  int boundary = UTF8PROC_BOUNDCLASS_START;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point.value), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
      throw InternalError{{"normalize_failed", "", "a code point has no decomposition", ""}};
    }
    points.insert(points.end(), parts.begin(), parts.begin() + count);
    at += point.bytes;
  }
  order_marks(points);
  const utf8proc_ssize_t composed = utf8proc_normalize_utf32(
      points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
  if (composed < 0) throw InternalError{{"normalize_failed", "", "composition failed", ""}};
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < composed; ++i) {
    append_utf8(out, static_cast<char32_t>(points[static_cast<size_t>(i)]));
  }
  return out;
}

}  // namespace

Normalizer Normalizer::parse(const Json& json, const std::string& source) {
  Normalizer out;
  if (json.is_null()) return out;
  const std::string type = json_string_or(json, "type", "", source);
  if (type == "NFC") {
    out.forms_ = {Form::kNfc};
    return out;
  }
  if (type == "NFKC") {
    out.forms_ = {Form::kNfkc};
    return out;
  }
  const auto parts = json.find("normalizers");
  if (type != "Sequence" || parts == json.end() || !parts->is_array()) {
    throw IoError{{"tokenizer_unsupported", source,
                   source + ": normalizer \"" + printable(type) + "\" is not supported", ""}};
  }
  for (const Json& part : *parts) {
    for (const Form form : parse(part, source).forms_) out.forms_.push_back(form);
    if (out.forms_.size() > kMaxForms) {
      throw IoError{{"tokenizer_unsupported", source,
                     source + ": more than " + std::to_string(kMaxForms) + " normalizers", ""}};
    }
  }
  return out;
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  if (is_ascii(text)) return text;
  for (const Form form : forms_) {
    constexpr unsigned kNfc = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    const unsigned options = form == Form::kNfkc ? kNfc | UTF8PROC_COMPAT : kNfc;
    storage = normal_form(text, static_cast<utf8proc_option_t>(options));
    text = storage;
  }
  return text;
}

}  // namespace mere
