// One queue of heavy jobs for all processes of a user on a machine.
//
//   Workload workload = workload_of({"image", "generate"});
//   workload.estimate_bytes = ...;
//   const AdmissionLease lease = Admission().acquire(workload, progress);   // may wait
//   // read weights, compute; the lease ends with its scope
//
// A machine has 1 to 6 permits by its memory, a job takes some of them by its class
// (engine/workload.h). Jobs start in the order they came: only the head of the queue is ever let
// in, so a small job does not overtake a large one that waits, and none waits for ever. The head
// starts when its permits are free and the memory it needs is. The queue is a file that every
// process changes under a lock (engine/admission_ledger.h); there is no daemon. What a killed
// process left is taken out by the next one that looks.
//
// Easy to get wrong:
// - A job that starts another program and waits for it must not make that one queue up behind
//   itself. Whoever holds a ticket says so in MERERUN_ADMISSION_LEASE, and a job whose ancestor
//   holds that ticket, or that runs in the same process, takes none.
// - A ticket names its process by number, start time and boot, so that a number used again does not
//   keep a dead job's permits.
// - The clock may be set back: a new ticket is dated after every ticket of the queue.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/progress.h"
#include "engine/admission_ledger.h"
#include "engine/host_sample.h"
#include "engine/workload.h"

namespace mere {

// The defaults are what the program uses; tests replace them.
struct AdmissionOptions {
  fs::path folder;                                 // empty: <app-support>/admission
  std::function<HostSample()> sample;              // empty: sample_host()
  std::function<double()> clock = ledger_time;     // seconds since 2001
  std::chrono::milliseconds poll{250};             // between two looks at the queue
  std::chrono::milliseconds lock_timeout{30'000};  // a lock held longer than that is an error
  bool inherits = true;                            // MERERUN_ADMISSION_LEASE is read and set
};

// A place among the running jobs, given back when it goes; empty when the job needed none.
class AdmissionLease {
 public:
  AdmissionLease();
  ~AdmissionLease();
  AdmissionLease(AdmissionLease&& other) noexcept;
  AdmissionLease& operator=(AdmissionLease&& other) noexcept;

  // Gives the place back before the end of the scope. What goes wrong is passed over: the ticket of
  // a process that has ended is taken out in any case.
  void release() noexcept;
  bool holds_ticket() const { return held_ != nullptr; }
  // Empty without a ticket.
  std::string ticket() const;
  // Seconds from asking to starting; 0 when it started at once.
  double waited_seconds() const { return waited_seconds_; }

 private:
  friend class Admission;
  struct Held;
  std::unique_ptr<Held> held_;
  double waited_seconds_ = 0;
};

struct AdmissionSnapshot {
  int capacity_permits = 0;
  int active_permits = 0;
  std::vector<AdmissionTicket> active, queued;  // each in the order of the queue
  HostSample host;
};

class Admission {
 public:
  explicit Admission(AdmissionOptions options = {});

  // Waits for a place and takes it; returns at once when the workload needs no ticket. Waiting is
  // told by report_waiting(). Throws
  // ResourceError "admission_disk", "admission_memory" or "admission_pressure" when the machine
  // cannot run the job and waiting would not help; IoError when the queue cannot be used;
  // Cancelled. Whatever it throws, no ticket is left.
  AdmissionLease acquire(const Workload& workload, Progress& progress);

  // Who runs and who waits. Takes out what killed processes left, and creates nothing.
  AdmissionSnapshot snapshot();

 private:
  struct Ask;
  template <typename Change>
  void transact(const Progress* progress, const Change& change);
  bool inherits_lease(Progress& progress);
  bool try_admit(AdmissionLedger& ledger, Ask& ask);
  void remove(const std::string& id);

  AdmissionOptions options_;
};

}  // namespace mere
