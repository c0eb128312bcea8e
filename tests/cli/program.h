// Runs mere.run as a user would: a process of its own, with its own home, cache and working folder.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/files.h"

namespace mere {

struct ProgramResult {
  int status = -1;  // exit status; 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

// How the program is started, where a test cares.
struct ProgramSetup {
  std::vector<std::string> variables{};  // "NAME=value", before the usual ones
  int terminal_columns = -1;    // >= 0: stderr is a terminal; 0: that does not tell its width
  std::string stdout_path{};    // not empty: stdout goes there
  int64_t file_size_limit = 0;  // bytes; above 0: ulimit -f
};

class Program {
 public:
  Program();
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Working folder of the program.
  fs::path folder() const { return root_ / "work"; }
  fs::path models() const { return root_ / "data/MereRun/models"; }

  // `watch` sees everything written to stderr so far, whenever more arrives.
  using Watch = std::function<void(pid_t pid, const std::string& err)>;
  ProgramResult run(const std::vector<std::string>& arguments, const Watch& watch = {},
                    const ProgramSetup& setup = {}) const;
  // run() of "image generate" with the embedded model, and `arguments`.
  ProgramResult generate(const std::vector<std::string>& arguments, const Watch& watch = {},
                         const ProgramSetup& setup = {}) const;

  fs::path write(const std::string& name, const std::string& bytes) const;
  std::string read(const std::string& name) const;
  // Names in the working folder, sorted, hidden ones too.
  std::vector<std::string> files() const;

 private:
  fs::path root_;
};

}  // namespace mere
