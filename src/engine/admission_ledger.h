// The file behind admission: who runs and who waits. docs/cli.md, "Several jobs at once", says what
// users see of it.
//
// Every reader sees a whole file, for it is replaced and never written in place; a change is made
// under the lock beside it. A file that cannot be understood is an error and is left as it is: a
// ledger that started again empty would let jobs in beside those that run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "engine/workload.h"

namespace mere {

struct AdmissionTicket {
  std::string id;  // UUID, upper case
  int64_t process = 0;
  // When the process started, which tells it from a later one of the same number. Absent in files
  // of programs that do not write it.
  std::optional<uint64_t> process_start_ticks;
  std::string boot_session;
  std::string label;
  ResourceClass resource_class = ResourceClass::kStandard;
  int permits = 1;       // fixed when the ticket is taken
  double queued_at = 0;  // seconds since 2001-01-01T00:00:00Z
  std::optional<double> admitted_at;
  bool active = false;
  Json unknown = Json::object();  // members that this program does not know: they are kept
};

struct AdmissionLedger {
  std::vector<AdmissionTicket> tickets;  // in the order of the queue after read_ledger()

  AdmissionTicket* find(const std::string& id);
  int active_permits() const;
  // In the order of the queue: by queued_at, then id.
  void sort();
  // Takes out tickets of other boots and of processes that have ended; true when there were any.
  bool prune(const std::string& boot_session);
};

// A missing file is an empty ledger. IoError with code "admission_ledger_damaged" or
// "admission_ledger_version" and what to do.
AdmissionLedger read_ledger(const fs::path& path);
void write_ledger(const fs::path& path, const AdmissionLedger& ledger);

// Now, as queued_at counts.
double ledger_time();
std::string new_ticket_id();

}  // namespace mere
