#include "core/error.h"

#include <utility>

namespace mere {

Error::Error(ErrorKind kind, ErrorInfo info) : kind_(kind), info_(std::move(info)) {
  info_.message = printable(info_.message, 1000);
  info_.hint = printable(info_.hint, 1000);
  what_ = info_.message;
  if (!info_.hint.empty()) what_ += " (" + info_.hint + ")";
}

int exit_status(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return 64;
    case ErrorKind::kCancelled:
      return 130;
    case ErrorKind::kIo:
    case ErrorKind::kResource:
    case ErrorKind::kInternal:
      return 1;
  }
  return 1;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  for (char c : text) {
    if (out.size() >= max_bytes) {
      // Do not cut a UTF-8 character in two.
      while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80)
        out.pop_back();
      if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xC0) out.pop_back();
      return out + "...";
    }
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 0x20 || byte == 0x7F) ? '?' : c;
  }
  return out;
}

}  // namespace mere
