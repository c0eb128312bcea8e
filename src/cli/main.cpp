#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <signal.h>
#include <string_view>
#include <unistd.h>

#include "cli/app.h"

namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// OpenMP's threads spin for milliseconds while they wait unless told otherwise before the program
// is loaded, which on a busy machine steals the time of the thread that everybody waits for: with
// the processors otherwise loaded a run took three times as long. Some 30 us bridge the gaps
// between short loops and cost nothing then. Starting again with the setting costs 12 ms, so short
// commands are left alone.
// A setting of the user's that OpenMP takes stays.
void spin_briefly(int argc, char** argv) {
  const bool may_compute = argc > 3;
  const std::string_view policy = environment("OMP_WAIT_POLICY");
  const std::string_view spins = environment("GOMP_SPINCOUNT");
  const bool chosen = policy == "active" || policy == "ACTIVE" || policy == "passive" ||
                      policy == "PASSIVE" || spins.starts_with("inf") || spins.starts_with("INF") ||
                      spins.find_first_of("123456789") == 0 || spins == "0";
  if (!may_compute || chosen) return;
  ::unsetenv("OMP_WAIT_POLICY");
  if (::setenv("GOMP_SPINCOUNT", "2000", 1) == 0) ::execv("/proc/self/exe", argv);
  // Still here: the run goes on as it is.
}

// An exception on a thread of a library has nobody to catch it: still one line and status 1.
[[noreturn]] void end_with_one_line() {
  const char* what = "unknown failure";
  try {
    if (const std::exception_ptr failure = std::current_exception())
      std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    what = "out of memory";
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  std::fprintf(stderr, "mere.run: error: %s\n", what);
  ::_exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_with_one_line);
  // A limit on file sizes is then an error of the write: one line, and no temporary file is left.
  ::signal(SIGXFSZ, SIG_IGN);
  spin_briefly(argc, argv);
  return mere::cli::run(argc, argv);
}
