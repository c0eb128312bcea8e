// Errors every layer throws and every door (command line, server) maps.
//
//   throw UsageError{{.code = "size_unsupported", .field = "--width",
//                     .message = "width 130 is not a multiple of 16",
//                     .hint = "use 128 or 144"}};
//
// Rule of use (design: caller, world, us):
//   UsageError     the caller asked for something that cannot be: bad flag, missing file, not a
//   model IoError        the world failed: a file is damaged, a disk is full ResourceError  the
//   machine cannot: not enough memory InternalError  our own bug, or numbers that went wrong in our
//   own computation Cancelled      the user stopped it
// Expected outcomes (a key that may be absent) are std::optional, never exceptions.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace mere {

enum class ErrorKind { kUsage, kIo, kResource, kInternal, kCancelled };

struct ErrorInfo {
  std::string code;   // stable snake_case identifier for programs
  std::string field;  // option, file or tensor concerned; may be empty
  std::string
      message;       // one line: what failed, on which file or tensor. Never a secret or a prompt
  std::string hint;  // one line: what to do about it; may be empty
};

class Error : public std::exception {
 public:
  Error(ErrorKind kind, ErrorInfo info);

  ErrorKind kind() const { return kind_; }
  const ErrorInfo& info() const { return info_; }
  // "message (hint)", one line; control characters are replaced so that a hostile file name or
  // tensor name cannot write to the terminal.
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  ErrorKind kind_;
  ErrorInfo info_;
  std::string what_;
};

struct UsageError : Error {
  explicit UsageError(ErrorInfo info) : Error(ErrorKind::kUsage, std::move(info)) {}
};
struct IoError : Error {
  explicit IoError(ErrorInfo info) : Error(ErrorKind::kIo, std::move(info)) {}
};
struct ResourceError : Error {
  explicit ResourceError(ErrorInfo info) : Error(ErrorKind::kResource, std::move(info)) {}
};
struct InternalError : Error {
  explicit InternalError(ErrorInfo info) : Error(ErrorKind::kInternal, std::move(info)) {}
};
struct Cancelled : Error {
  Cancelled() : Error(ErrorKind::kCancelled, {"cancelled", "", "cancelled", ""}) {}
};

// The process exit status of an error: 64 usage, 130 cancelled, 1 everything else.
int exit_status(ErrorKind kind);

// `text` cut to `max_bytes` with control characters replaced by '?', for use in messages about
// names that come from files.
std::string printable(std::string_view text, size_t max_bytes = 200);

}  // namespace mere
