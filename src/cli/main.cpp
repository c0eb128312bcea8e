#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <signal.h>
#include <unistd.h>

#include "cli/app.h"

namespace {

// OpenMP's threads spin for milliseconds while they wait unless told otherwise before the program
// is loaded, which on a busy machine steals the time of the thread that everybody waits for: with
// the processors otherwise loaded a run took three times as long. Some 30 us bridge the gaps
// between short loops and cost nothing then. Starting again with the setting costs 12 ms, so short
// commands are left alone.
void spin_briefly(int argc, char** argv) {
  const bool may_compute = argc > 3;
  if (!may_compute || std::getenv("OMP_WAIT_POLICY") != nullptr ||
      std::getenv("GOMP_SPINCOUNT") != nullptr) {
    return;
  }
  if (::setenv("GOMP_SPINCOUNT", "2000", 0) == 0) ::execv("/proc/self/exe", argv);
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
