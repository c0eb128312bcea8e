#include "cli/output.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace mere::cli {

void print_result(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    throw IoError{{"stdout_unwritable", "",
                   std::string("cannot write to standard output: ") + std::strerror(errno), ""}};
  }
}

void print_document(const Document& document) {
  print_result(document.dump(2, ' ', false, Document::error_handler_t::replace) + "\n");
}

Document error_document(const ErrorInfo& info, bool cancelled) {
  return {{"status", cancelled ? "cancelled" : "error"},
          {"error",
           {{"code", info.code},
            {"field", info.field},
            {"message", info.message},
            {"hint", info.hint}}}};
}

bool terminal_has_codes() {
  const char* term = std::getenv("TERM");
  return term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

bool may_colour(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  return ::isatty(::fileno(stream)) == 1 && terminal_has_codes() &&
         (no_color == nullptr || *no_color == '\0');
}

void print_error(std::string_view text) {
  const std::string label = may_colour(stderr) ? "\x1b[31merror:\x1b[0m " : "error: ";
  const std::string line = "mere.run: " + label + std::string(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string shown(std::string_view text) { return printable(text, 4096); }

}  // namespace mere::cli
