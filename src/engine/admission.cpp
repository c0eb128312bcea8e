#include "engine/admission.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/error.h"
#include "core/file_lock.h"
#include "core/process.h"
#include "core/system.h"

namespace mere {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kLeaseVariable = "MERERUN_ADMISSION_LEASE";
// Waiting looks for a cancelled request this often.
constexpr milliseconds kCancelPause{25};
// For what must not hold a program up: its end, and a look at the queue.
constexpr milliseconds kShortTimeout{2000};
// Between the dates of two tickets; a double of today's seconds tells a tenth of it apart.
constexpr double kQueueGapSeconds = 1e-6;

fs::path lock_path(const AdmissionOptions& options) { return options.folder / "state.lock"; }
fs::path state_path(const AdmissionOptions& options) { return options.folder / "state.json"; }

void make_private_folder(const fs::path& folder) {
  std::error_code ec;
  fs::create_directories(folder.parent_path(), ec);
  if (::mkdir(folder.c_str(), S_IRWXU) == 0) return;
  struct stat st {};
  if (::stat(folder.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 077) != 0) {
    ::chmod(folder.c_str(), S_IRWXU);
  }
}

void check_disk(const HostSample& host) {
  const int64_t floor = minimum_disk_bytes(host);
  if (!host.disk || *host.disk >= floor) return;
  throw ResourceError{{"admission_disk", "",
                       "not started: only " + human_bytes(*host.disk) + " of disk are free, and " +
                           human_bytes(floor) + " are kept for swap and temporary files",
                       "free disk space where the application's data is"}};
}

[[noreturn]] void refuse_memory(int64_t available, int64_t needed) {
  throw ResourceError{{"admission_memory", "",
                       "not started: only " + human_bytes(available) +
                           " of memory can be had, and this job needs " + human_bytes(needed),
                       "close other programs, or choose a smaller model"}};
}

[[noreturn]] void refuse_pressure() {
  throw ResourceError{{"admission_pressure", "",
                       "not started: the machine is already under critical memory pressure",
                       "close other programs"}};
}

// Sleeps, and throws Cancelled soon after a cancellation.
void pause(milliseconds length, const Progress& progress) {
  const Clock::time_point end = Clock::now() + length;
  while (Clock::now() < end) {
    progress.check_cancelled();
    std::this_thread::sleep_for(std::min<Clock::duration>(kCancelPause, end - Clock::now()));
  }
  progress.check_cancelled();
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// ---- The lease ----------------------------------------------------------------------------------

struct AdmissionLease::Held {
  Held(AdmissionOptions options, std::string id, bool announced);
  ~Held();
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void release() noexcept;

  AdmissionOptions options;
  std::string id;
  pid_t owner;     // a forked child must not give its parent's place back
  bool announced;  // in the environment
  bool released = false;
};

namespace {

// The places this process holds, for those that an exit() in the middle of a job leaves. Never
// destroyed: exit handlers run after the destructors of statics.
template <typename Held>
class HeldPlaces {
 public:
  static HeldPlaces& instance() {
    static auto* places = new HeldPlaces;
    return *places;
  }
  void add(Held* held) {
    static std::once_flag once;
    std::call_once(once, [] { std::atexit([] { instance().release_all(); }); });
    const std::lock_guard guard(mutex_);
    held_.push_back(held);
  }
  void remove(Held* held) {
    const std::lock_guard guard(mutex_);
    std::erase(held_, held);
  }

 private:
  void release_all() {
    const std::lock_guard guard(mutex_);
    for (Held* held : held_) held->release();
  }
  std::mutex mutex_;
  std::vector<Held*> held_;
};

}  // namespace

AdmissionLease::Held::Held(AdmissionOptions the_options, std::string the_id, bool is_announced)
    : options(std::move(the_options)),
      id(std::move(the_id)),
      owner(::getpid()),
      announced(is_announced) {
  if (announced) ::setenv(kLeaseVariable, id.c_str(), 1);
  HeldPlaces<Held>::instance().add(this);
}

AdmissionLease::Held::~Held() {
  HeldPlaces<Held>::instance().remove(this);
  release();
}

void AdmissionLease::Held::release() noexcept {
  if (released || ::getpid() != owner) return;
  released = true;
  try {
    if (announced) ::unsetenv(kLeaseVariable);
    const FileLock lock = FileLock::acquire(lock_path(options), {.timeout = kShortTimeout});
    AdmissionLedger ledger = read_ledger(state_path(options));
    const auto is_mine = [&](const AdmissionTicket& ticket) { return ticket.id == id; };
    if (std::erase_if(ledger.tickets, is_mine) > 0) write_ledger(state_path(options), ledger);
  } catch (const std::exception&) {
    // The next process that looks finds this one gone.
  }
}

AdmissionLease::AdmissionLease() = default;
AdmissionLease::~AdmissionLease() = default;
AdmissionLease::AdmissionLease(AdmissionLease&& other) noexcept = default;

AdmissionLease& AdmissionLease::operator=(AdmissionLease&& other) noexcept = default;

void AdmissionLease::release() noexcept { held_.reset(); }

std::string AdmissionLease::ticket() const { return held_ ? held_->id : ""; }

// ---- Admission ----------------------------------------------------------------------------------

// A request for a place, and where it stands.
struct Admission::Ask {
  AdmissionTicket ticket;
  int64_t needed_bytes = 0;
  bool vouched_for = false;
  Waiting waiting;  // of the last look
};

Admission::Admission(AdmissionOptions options) : options_(std::move(options)) {
  if (options_.folder.empty()) options_.folder = app_support_dir() / "admission";
  if (!options_.sample) {
    options_.sample = [folder = options_.folder] { return sample_host(folder); };
  }
}

// Hands the pruned ledger to `change(ledger)`, which returns true when it changed it, under the
// lock. Nothing is written when it throws.
template <typename Change>
void Admission::transact(const Progress* progress, const Change& change) {
  const FileLock lock = FileLock::acquire(lock_path(options_),
                                          {.progress = progress, .timeout = options_.lock_timeout});
  AdmissionLedger ledger = read_ledger(state_path(options_));
  const bool pruned = ledger.prune(boot_id());
  const bool changed = change(ledger);
  if (pruned || changed) write_ledger(state_path(options_), ledger);
}

// True when a job that this one is part of holds the ticket named in the environment.
bool Admission::inherits_lease(Progress& progress) {
  const char* id = std::getenv(kLeaseVariable);
  std::error_code ec;
  if (id == nullptr || *id == '\0' || !fs::exists(state_path(options_), ec)) return false;
  bool inherits = false;
  transact(&progress, [&](AdmissionLedger& ledger) {
    const AdmissionTicket* ticket = ledger.find(id);
    inherits = ticket != nullptr && ticket->active &&
               is_self_or_ancestor(static_cast<pid_t>(ticket->process));
    return false;
  });
  return inherits;
}

// One look at the queue: true when the ticket of `ask` is active now. Throws when waiting could not
// help.
bool Admission::try_admit(AdmissionLedger& ledger, Ask& ask) {
  const HostSample host = options_.sample();
  check_disk(host);
  ledger.sort();
  AdmissionTicket* mine = ledger.find(ask.ticket.id);
  if (mine == nullptr) {
    throw IoError{{"admission_ticket_lost", state_path(options_).string(),
                   "the job disappeared from the queue while it waited",
                   "start it again; do not change the queue's files while jobs wait"}};
  }
  if (mine->active) return true;
  const int active = ledger.active_permits();
  const int capacity = capacity_permits(host.physical);
  ask.waiting.position = 0;
  ask.waiting.queued = 0;
  for (const AdmissionTicket& ticket : ledger.tickets) {
    if (ticket.active) continue;
    ++ask.waiting.queued;
    if (&ticket == mine) ask.waiting.position = ask.waiting.queued;
  }
  ask.waiting.active_permits = active;
  ask.waiting.capacity_permits = capacity;
  const auto wait_for = [&](const char* reason) {
    ask.waiting.reason = reason;
    return false;
  };
  if (ask.waiting.position > 1) return wait_for("turn");
  // With nothing active the head fits, also when the machine had more permits when it queued up.
  if (active > 0 && active + mine->permits > capacity) return wait_for("permits");
  const MemoryPressure pressure = memory_pressure(host);
  if (pressure == MemoryPressure::kCritical) refuse_pressure();
  if (pressure == MemoryPressure::kElevated && active > 0) return wait_for("pressure");
  if (host.available && *host.available < ask.needed_bytes) {
    if (active > 0) return wait_for("memory");
    if (!ask.vouched_for) refuse_memory(*host.available, ask.needed_bytes);
  }
  mine->active = true;
  mine->admitted_at = std::max(options_.clock(), mine->queued_at);
  return true;
}

void Admission::remove(const std::string& id) {
  try {
    transact(nullptr, [&](AdmissionLedger& ledger) {
      return std::erase_if(ledger.tickets,
                           [&](const AdmissionTicket& ticket) { return ticket.id == id; }) > 0;
    });
  } catch (const Error&) {
    // What is being thrown already says more; the ticket goes with its process.
  }
}

AdmissionLease Admission::acquire(const Workload& workload, Progress& progress) {
  progress.check_cancelled();
  const std::optional<ResourceClass> resource_class = mere::resource_class(workload);
  if (!resource_class) return {};
  if (options_.inherits && inherits_lease(progress)) return {};
  const Clock::time_point start = Clock::now();
  const HostSample host = options_.sample();
  check_disk(host);
  make_private_folder(options_.folder);

  Ask ask;
  ask.needed_bytes = memory_needed(*resource_class, workload);
  ask.vouched_for = workload.memory_is_vouched_for;
  ask.waiting.label = workload.label;
  ask.ticket.id = new_ticket_id();
  ask.ticket.process = ::getpid();
  if (const auto stat = process_stat(::getpid())) {
    ask.ticket.process_start_ticks = stat->start_ticks;
  }
  ask.ticket.boot_session = boot_id();
  ask.ticket.label = printable(workload.label.empty() ? "job" : workload.label, 100);
  ask.ticket.resource_class = *resource_class;
  ask.ticket.permits = permits_of(*resource_class, capacity_permits(host.physical));

  bool admitted = false;
  transact(&progress, [&](AdmissionLedger& ledger) {
    remove_abandoned_writes(state_path(options_));
    ask.ticket.queued_at = options_.clock();
    for (const AdmissionTicket& other : ledger.tickets) {
      const double after = std::nextafter(other.queued_at + kQueueGapSeconds, INFINITY);
      ask.ticket.queued_at = std::max(ask.ticket.queued_at, after);
    }
    ledger.tickets.push_back(ask.ticket);
    admitted = try_admit(ledger, ask);
    return true;
  });
  AdmissionLease lease;
  try {
    const bool waits = !admitted;
    while (!admitted) {
      ask.waiting.seconds = seconds_since(start);
      progress.report_waiting(ask.waiting);
      pause(options_.poll, progress);
      transact(&progress,
               [&](AdmissionLedger& ledger) { return admitted = try_admit(ledger, ask); });
    }
    lease.held_ =
        std::make_unique<AdmissionLease::Held>(options_, ask.ticket.id, options_.inherits);
    if (waits) {
      lease.waited_seconds_ = seconds_since(start);
      ask.waiting.position = 0;
      ask.waiting.reason.clear();
      ask.waiting.seconds = lease.waited_seconds_;
      progress.report_waiting(ask.waiting);
    }
  } catch (...) {
    if (!lease.holds_ticket()) remove(ask.ticket.id);
    throw;
  }
  return lease;
}

AdmissionSnapshot Admission::snapshot() {
  AdmissionSnapshot snapshot;
  snapshot.host = options_.sample();
  snapshot.capacity_permits = capacity_permits(snapshot.host.physical);
  std::error_code ec;
  if (!fs::exists(state_path(options_), ec)) return snapshot;
  AdmissionOptions in_short = options_;
  in_short.lock_timeout = std::min(options_.lock_timeout, kShortTimeout);
  Admission(in_short).transact(nullptr, [&](AdmissionLedger& ledger) {
    remove_abandoned_writes(state_path(options_));
    for (const AdmissionTicket& ticket : ledger.tickets) {
      (ticket.active ? snapshot.active : snapshot.queued).push_back(ticket);
    }
    snapshot.active_permits = ledger.active_permits();
    return false;
  });
  return snapshot;
}

}  // namespace mere
