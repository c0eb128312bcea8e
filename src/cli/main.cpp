#include <cstdio>
#include <exception>
#include <new>
#include <signal.h>
#include <unistd.h>

#include "cli/app.h"
#include "core/system.h"

namespace {

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
  const bool may_compute = argc > 3;  // short commands do not pay for it
  if (may_compute) mere::restart_to_spin_briefly(argv);
  return mere::cli::run(argc, argv);
}
