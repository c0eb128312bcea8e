#include "cli/interrupt.h"

#include <atomic>
#include <cerrno>
#include <signal.h>
#include <string_view>
#include <unistd.h>

namespace mere::cli {
namespace {

constexpr int kCancelledStatus = 130;

std::atomic<Progress*> active{nullptr};
std::atomic<bool> announce_stop{false};
static_assert(std::atomic<Progress*>::is_always_lock_free);

// Only calls that are allowed in a signal handler.
void on_signal(int) {
  const int saved_errno = errno;
  Progress* progress = active.load();
  if (progress == nullptr || progress->cancelled()) ::_exit(kCancelledStatus);
  progress->cancel();
  if (announce_stop.load()) {
    constexpr std::string_view kText = "\nstopping after this step (again to stop at once)\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  }
  errno = saved_errno;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  // Reads and writes that were under way go on.
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(Progress& progress, bool announce) {
  announce_stop = announce;
  active = &progress;
  set_handler(on_signal);
}

InterruptGuard::~InterruptGuard() {
  set_handler(SIG_DFL);
  active = nullptr;
}

}  // namespace mere::cli
