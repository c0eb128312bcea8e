#include "engine/admission.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "admission_fixture.h"

#include "core/error.h"
#include "core/process.h"

namespace mere {
namespace {

constexpr const char* kLeaseVariable = "MERERUN_ADMISSION_LEASE";

class AdmissionTest : public AdmissionFixture {
 protected:
  ~AdmissionTest() override { ::unsetenv(kLeaseVariable); }

  // A ticket of this process as another job would have left it.
  AdmissionTicket other_ticket(double queued_at, int permits, bool active) {
    AdmissionTicket ticket;
    ticket.id = new_ticket_id();
    ticket.process = ::getpid();
    ticket.process_start_ticks = process_stat(::getpid())->start_ticks;
    ticket.boot_session = boot_id();
    ticket.label = "other job";
    ticket.permits = permits;
    ticket.queued_at = queued_at;
    ticket.active = active;
    return ticket;
  }
  void add(const AdmissionTicket& ticket) {
    AdmissionLedger all = ledger();
    all.tickets.push_back(ticket);
    write_ledger(state(), all);
  }
  void clear() { write_ledger(state(), {}); }
  ErrorInfo resource_error(const Workload& workload) {
    try {
      (void)queue().acquire(workload, progress);
    } catch (const ResourceError& e) {
      return e.info();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  // Runs `action` in a process of its own and returns its exit status.
  template <typename Action>
  static int in_child(const Action& action) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(action());
    int status = -1;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(AdmissionTest, AnIdleMachineAdmitsAtOnceAndSaysNothing) {
  {
    const AdmissionLease lease = take(ResourceClass::kStandard);
    EXPECT_TRUE(lease.holds_ticket());
    EXPECT_EQ(lease.waited_seconds(), 0);
    const AdmissionLedger now_held = ledger();
    ASSERT_EQ(now_held.tickets.size(), 1U);
    const AdmissionTicket& ticket = now_held.tickets[0];
    EXPECT_EQ(ticket.id, lease.ticket());
    EXPECT_EQ(ticket.process, ::getpid());
    EXPECT_EQ(ticket.process_start_ticks, process_stat(::getpid())->start_ticks);
    EXPECT_EQ(ticket.boot_session, boot_id());
    EXPECT_EQ(ticket.label, "test job");
    EXPECT_EQ(ticket.permits, 2);
    EXPECT_TRUE(ticket.active);
    EXPECT_GE(*ticket.admitted_at, ticket.queued_at);
  }
  EXPECT_TRUE(ledger().tickets.empty());
  EXPECT_TRUE(progress.waits.empty());
}

TEST_F(AdmissionTest, FilesArePrivate) {
  fs::create_directories(ledger_folder());
  fs::permissions(ledger_folder(), static_cast<fs::perms>(0755));
  const AdmissionLease lease = take(ResourceClass::kSmall);
  EXPECT_EQ(fs::status(ledger_folder()).permissions(), static_cast<fs::perms>(0700));
  for (const char* name : {"state.json", "state.lock"}) {
    EXPECT_EQ(fs::status(ledger_folder() / name).permissions(), static_cast<fs::perms>(0600));
  }
}

TEST_F(AdmissionTest, WhatNeedsNoTicketLeavesNothing) {
  Workload workload = job(ResourceClass::kStandard);
  workload.inspects = true;
  EXPECT_FALSE(queue().acquire(workload, progress).holds_ticket());
  workload.inspects = false;
  workload.estimate_bytes = kGib / 2;
  // However bad the machine is.
  host.disk = 0;
  host.available = 0;
  EXPECT_FALSE(queue().acquire(workload, progress).holds_ticket());
  EXPECT_FALSE(fs::exists(ledger_folder()));
}

TEST_F(AdmissionTest, PermitsAreSharedUpToTheCapacity) {
  const AdmissionLease a = take(ResourceClass::kStandard);
  const AdmissionLease b = take(ResourceClass::kStandard);
  const AdmissionLease c = take(ResourceClass::kSmall);
  const AdmissionLease d = take(ResourceClass::kSmall);
  EXPECT_TRUE(progress.waits.empty());
  EXPECT_EQ(ledger().active_permits(), 6);
  progress.on_wait = [&](const Waiting& waiting) {
    EXPECT_EQ(waiting.label, "test job");
    EXPECT_EQ(waiting.position, 1);
    EXPECT_EQ(waiting.queued, 1);
    EXPECT_EQ(waiting.active_permits, 6);
    EXPECT_EQ(waiting.capacity_permits, 6);
    EXPECT_EQ(waiting.reason, "permits");
    progress.cancel();
  };
  EXPECT_THROW(take(ResourceClass::kSmall), Cancelled);
  EXPECT_EQ(progress.waits.size(), 1U);
  EXPECT_EQ(ledger().tickets.size(), 4U);
}

TEST_F(AdmissionTest, ALargeJobRunsAlone) {
  std::optional<AdmissionLease> small = take(ResourceClass::kSmall);
  progress.on_wait = [&](const Waiting& waiting) {
    if (waiting.position > 0) small.reset();
  };
  const AdmissionLease large = take(ResourceClass::kLarge);
  ASSERT_EQ(progress.waits.size(), 2U);
  EXPECT_EQ(progress.waits[1].position, 0);
  EXPECT_GT(large.waited_seconds(), 0);
  EXPECT_EQ(ledger().active_permits(), 6);
}

// However many permits are free.
TEST_F(AdmissionTest, ASmallJobDoesNotOvertakeALargeOneThatWaits) {
  const AdmissionLease running = take(ResourceClass::kSmall);
  AdmissionTicket large = other_ticket(now + 1, 6, false);
  add(large);
  now += 10;
  int looks = 0;
  progress.on_wait = [&](const Waiting& waiting) {
    if (waiting.position == 0) return;
    EXPECT_EQ(waiting.position, 2);
    EXPECT_EQ(waiting.queued, 2);
    EXPECT_EQ(waiting.reason, "turn");
    if (++looks < 3) return;
    AdmissionLedger all = ledger();
    std::erase_if(all.tickets, [&](const AdmissionTicket& t) { return t.id == large.id; });
    write_ledger(state(), all);
  };
  const AdmissionLease small = take(ResourceClass::kSmall);
  EXPECT_EQ(looks, 3);
}

TEST_F(AdmissionTest, TheQueueIsInTheOrderOfArrivalThenOfIds) {
  AdmissionTicket b = other_ticket(5, 1, false);
  AdmissionTicket a = other_ticket(5, 1, false);
  AdmissionTicket first = other_ticket(4, 1, false);
  if (b.id < a.id) std::swap(a.id, b.id);
  for (const AdmissionTicket& ticket : {b, a, first}) add(ticket);
  const AdmissionSnapshot snapshot = queue().snapshot();
  ASSERT_EQ(snapshot.queued.size(), 3U);
  EXPECT_EQ(snapshot.queued[0].id, first.id);
  EXPECT_EQ(snapshot.queued[1].id, a.id);
  EXPECT_EQ(snapshot.queued[2].id, b.id);
}

TEST_F(AdmissionTest, AClockThatWasSetBackDoesNotLetAJobOvertake) {
  const AdmissionLease running = take(ResourceClass::kLarge);
  const double later = now + 1'000'000;
  add(other_ticket(later, 1, false));
  progress.on_wait = [&](const Waiting& waiting) {
    EXPECT_EQ(waiting.position, 2);
    progress.cancel();
  };
  EXPECT_THROW(take(ResourceClass::kSmall), Cancelled);
}

// A ticket of more permits than the machine has meanwhile (a smaller control group) starts when it
// is alone.
TEST_F(AdmissionTest, PermitsStayAsTheyWereRegistered) {
  std::optional<AdmissionLease> running = take(ResourceClass::kLarge);
  progress.on_wait = [&](const Waiting& waiting) {
    if (waiting.position == 0) return;
    host = host_with(40, 38);
    running.reset();
  };
  const AdmissionLease lease = take(ResourceClass::kLarge);
  EXPECT_EQ(ledger().tickets[0].permits, 6);
  EXPECT_EQ(queue().snapshot().capacity_permits, 1);
}

// ---- Memory, pressure, disk ---------------------------------------------------------------------

TEST_F(AdmissionTest, MemoryIsWaitedForWhileOthersRun) {
  const AdmissionLease running = take(ResourceClass::kSmall);
  host.available = 10 * kGib;
  progress.on_wait = [&](const Waiting& waiting) {
    if (waiting.position == 0) return;
    EXPECT_EQ(waiting.reason, "memory");
    host.available = 16 * kGib;
  };
  EXPECT_TRUE(take(ResourceClass::kStandard).holds_ticket());
}

TEST_F(AdmissionTest, MemoryThatNobodyWillGiveBackIsAnError) {
  host.available = 16 * kGib - 1;
  const ErrorInfo info = resource_error(job(ResourceClass::kStandard));
  EXPECT_EQ(info.code, "admission_memory");
  EXPECT_NE(info.message.find("17.2 GB"), std::string::npos) << info.message;
  EXPECT_TRUE(ledger().tickets.empty());
  host.available.reset();
  EXPECT_TRUE(take(ResourceClass::kStandard).holds_ticket());
}

TEST_F(AdmissionTest, ALaptopRunsWhatKnowsItsNeed) {
  host = host_with(16, 9);
  EXPECT_EQ(resource_error(job(ResourceClass::kStandard)).code, "admission_memory");
  Workload workload = job(ResourceClass::kStandard);
  workload.estimate_bytes = 8 * kGib;
  EXPECT_TRUE(queue().acquire(workload, progress).holds_ticket());
  workload.estimate_bytes = 10 * kGib;
  EXPECT_EQ(resource_error(workload).code, "admission_memory");
  // --memory-limit: the user knows better.
  workload.memory_is_vouched_for = true;
  EXPECT_TRUE(queue().acquire(workload, progress).holds_ticket());
}

TEST_F(AdmissionTest, WhoVouchesForMemoryStillWaitsForOthers) {
  const AdmissionLease running = take(ResourceClass::kSmall);
  host.available = kGib;
  Workload workload = job(ResourceClass::kStandard);
  workload.memory_is_vouched_for = true;
  progress.on_wait = [&](const Waiting& waiting) {
    EXPECT_EQ(waiting.reason, "memory");
    progress.cancel();
  };
  EXPECT_THROW(queue().acquire(workload, progress), Cancelled);
}

TEST_F(AdmissionTest, CriticalPressureIsAnError) {
  host.own = 240 * kGib;  // 96 % of 256 - 6 GiB
  EXPECT_EQ(resource_error(job(ResourceClass::kSmall)).code, "admission_pressure");
  EXPECT_TRUE(ledger().tickets.empty());
}

TEST_F(AdmissionTest, CriticalPressureEndsAJobThatWaits) {
  const AdmissionTicket running = other_ticket(1, 6, true);
  add(running);
  progress.on_wait = [&](const Waiting&) {
    host.own = 240 * kGib;
    AdmissionLedger all = ledger();
    std::erase_if(all.tickets, [&](const AdmissionTicket& t) { return t.id == running.id; });
    write_ledger(state(), all);
  };
  EXPECT_EQ(resource_error(job(ResourceClass::kSmall)).code, "admission_pressure");
  EXPECT_TRUE(ledger().tickets.empty());
}

TEST_F(AdmissionTest, ElevatedPressureWaitsForOthersOnly) {
  std::optional<AdmissionLease> running = take(ResourceClass::kSmall);
  host.own = 232 * kGib;  // 93 % of 256 - 6 GiB
  ASSERT_EQ(memory_pressure(host), MemoryPressure::kElevated);
  progress.on_wait = [&](const Waiting& waiting) {
    if (waiting.position == 0) return;
    EXPECT_EQ(waiting.reason, "pressure");
    running.reset();
  };
  EXPECT_TRUE(take(ResourceClass::kSmall).holds_ticket());
  EXPECT_EQ(progress.waits.size(), 2U);
}

TEST_F(AdmissionTest, ADiskThatIsFullIsAnErrorBeforeAnythingIsWritten) {
  host.disk = 32 * kGib - 1;
  EXPECT_EQ(resource_error(job(ResourceClass::kSmall)).code, "admission_disk");
  EXPECT_FALSE(fs::exists(ledger_folder()));
  host.disk.reset();
  EXPECT_TRUE(take(ResourceClass::kSmall).holds_ticket());
}

TEST_F(AdmissionTest, ADiskThatFillsWhileAJobWaitsEndsIt) {
  const AdmissionLease running = take(ResourceClass::kLarge);
  progress.on_wait = [&](const Waiting&) { host.disk = 0; };
  EXPECT_EQ(resource_error(job(ResourceClass::kSmall)).code, "admission_disk");
  EXPECT_EQ(ledger().tickets.size(), 1U);
}

TEST(HostSample, DiskFloorIsAnEighthOfTheMemory) {
  const std::pair<int64_t, int64_t> rows[] = {{4, 8}, {64, 8}, {128, 16}, {256, 32}, {1024, 32}};
  for (const auto& [physical, floor] : rows) {
    HostSample host;
    host.physical = physical * kGib;
    EXPECT_EQ(minimum_disk_bytes(host), floor * kGib);
  }
}

TEST(HostSample, PressureIsTheShareOfACeiling) {
  HostSample host = large_host();
  host.free = 1000 * kGib;  // the memory less its reserve of 6 GiB is what limits
  const auto at = [&](double share, int64_t ceiling) {
    host.own = static_cast<int64_t>(share * static_cast<double>(ceiling));
    return memory_pressure_name(memory_pressure(host));
  };
  EXPECT_EQ(at(0.89, 250 * kGib), "nominal");
  EXPECT_EQ(at(0.91, 250 * kGib), "elevated");
  EXPECT_EQ(at(0.96, 250 * kGib), "critical");
  host.physical = 16 * kGib;  // below 24 GiB the reserve is 4
  EXPECT_EQ(at(0.89, 12 * kGib), "nominal");
  EXPECT_EQ(at(0.91, 12 * kGib), "elevated");
  host.physical = 4 * kGib;  // half, for the reserve would leave nothing
  EXPECT_EQ(at(0.89, 2 * kGib), "nominal");
  EXPECT_EQ(at(0.96, 2 * kGib), "critical");
  // own + free + inactive + half of active.
  host = {.physical = 256 * kGib,
          .own = 90 * kGib,
          .free = 2 * kGib,
          .inactive = 3 * kGib,
          .active = 8 * kGib};
  EXPECT_EQ(memory_pressure_name(memory_pressure(host)), "elevated");
  host.active.reset();
  EXPECT_EQ(memory_pressure_name(memory_pressure(host)), "unknown");
}

TEST(HostSample, OfThisMachine) {
  const TemporaryFolder folder;
  const HostSample host = sample_host(folder.path() / "admission");
  EXPECT_GT(host.physical, kGib / 4);
  EXPECT_GT(host.available.value_or(0), 0);
  EXPECT_GT(host.own.value_or(0), 0);
  EXPECT_GT(host.disk.value_or(0), 0);
  EXPECT_EQ(memory_pressure(host), MemoryPressure::kNominal);
}

// ---- Leases -------------------------------------------------------------------------------------

TEST_F(AdmissionTest, MovingALeaseMovesTheTicket) {
  AdmissionLease first = take(ResourceClass::kSmall);
  const std::string id = first.ticket();
  AdmissionLease second = std::move(first);
  EXPECT_EQ(second.ticket(), id);
  EXPECT_EQ(ledger().tickets.size(), 1U);
  second = take(ResourceClass::kSmall);
  EXPECT_EQ(ledger().tickets.size(), 1U);
  EXPECT_NE(second.ticket(), id);
  second.release();
  second.release();
  EXPECT_TRUE(ledger().tickets.empty());
}

TEST_F(AdmissionTest, CancellingWhileWaitingTakesTheTicketOut) {
  const AdmissionLease running = take(ResourceClass::kLarge);
  progress.on_wait = [&](const Waiting&) {
    EXPECT_EQ(ledger().tickets.size(), 2U);
    progress.cancel();
  };
  EXPECT_THROW(take(ResourceClass::kSmall), Cancelled);
  EXPECT_EQ(ledger().tickets.size(), 1U);
  EXPECT_EQ(ledger().tickets[0].id, running.ticket());
  EXPECT_THROW(take(ResourceClass::kSmall), Cancelled);
}

TEST_F(AdmissionTest, CancellingInterruptsALongPause) {
  const AdmissionLease running = take(ResourceClass::kLarge);
  AdmissionOptions options;
  options.folder = ledger_folder();
  options.sample = [] { return large_host(); };
  options.poll = std::chrono::minutes(5);
  options.inherits = false;
  std::thread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    progress.cancel();
  });
  EXPECT_THROW(Admission(options).acquire(job(ResourceClass::kSmall), progress), Cancelled);
  user.join();
}

TEST_F(AdmissionTest, ATicketThatDisappearedIsAnError) {
  const AdmissionLease running = take(ResourceClass::kLarge);
  progress.on_wait = [&](const Waiting&) { clear(); };
  try {
    (void)take(ResourceClass::kSmall);
    FAIL();
  } catch (const IoError& e) {
    EXPECT_EQ(e.info().code, "admission_ticket_lost");
  }
}

TEST_F(AdmissionTest, ExitInTheMiddleOfAJobGivesItsPlaceBack) {
  const int status = in_child([&] {
    static auto* never_destroyed = new AdmissionLease(take(ResourceClass::kSmall));
    if (!never_destroyed->holds_ticket()) return 8;
    if (ledger().tickets.size() != 1) return 9;
    std::exit(3);
  });
  EXPECT_EQ(status, 3);
  // Read as it is: pruning would hide what was left.
  EXPECT_TRUE(ledger().tickets.empty());
}

TEST_F(AdmissionTest, AForkedChildDoesNotGiveItsParentsPlaceBack) {
  AdmissionLease lease = take(ResourceClass::kSmall);
  EXPECT_EQ(in_child([&] {
              AdmissionLease copy = std::move(lease);
              copy.release();
              return 0;
            }),
            0);
  EXPECT_EQ(ledger().tickets.size(), 1U);
  const pid_t pid = ::fork();
  if (pid == 0) std::exit(0);  // with the exit handlers of the parent
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(ledger().tickets.size(), 1U);
}

// ---- Dead processes -----------------------------------------------------------------------------

TEST_F(AdmissionTest, AKilledJobFreesItsPlace) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const AdmissionLease lease = take(ResourceClass::kLarge);
    const ssize_t told = ::write(ends[1], "x", 1);
    while (told == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  progress.on_wait = [&](const Waiting& waiting) {
    if (waiting.position > 0) ::kill(pid, SIGKILL);  // its status is asked for later
  };
  EXPECT_TRUE(take(ResourceClass::kLarge).holds_ticket());
  EXPECT_FALSE(progress.waits.empty());
  ::waitpid(pid, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(AdmissionTest, TicketsOfOtherBootsAndReusedNumbersAreTakenOut) {
  AdmissionTicket rebooted = other_ticket(1, 6, true);
  rebooted.boot_session = "another boot";
  AdmissionTicket reused = other_ticket(2, 6, true);
  ++*reused.process_start_ticks;
  AdmissionTicket old_program = other_ticket(3, 1, true);
  old_program.process_start_ticks.reset();
  for (const AdmissionTicket& ticket : {rebooted, reused, old_program}) add(ticket);
  const AdmissionSnapshot snapshot = queue().snapshot();
  ASSERT_EQ(snapshot.active.size(), 1U);
  EXPECT_EQ(snapshot.active[0].id, old_program.id);
  // A look repairs the file.
  EXPECT_EQ(ledger().tickets.size(), 1U);
}

TEST_F(AdmissionTest, WhatKilledWritersLeftIsRemoved) {
  fs::create_directories(ledger_folder());
  folder.write("admission/.state.json.aB3dE5", "half");
  const AdmissionLease lease = take(ResourceClass::kSmall);
  EXPECT_FALSE(fs::exists(ledger_folder() / ".state.json.aB3dE5"));
}

// ---- Parent and child ---------------------------------------------------------------------------

TEST_F(AdmissionTest, AChildOfAHolderTakesNoTicket) {
  inherits = true;
  const AdmissionLease parent = take(ResourceClass::kLarge);
  EXPECT_EQ(std::getenv(kLeaseVariable), parent.ticket());
  const auto child_waits = [&] {
    progress.on_wait = [&](const Waiting&) { progress.cancel(); };
    try {
      return take(ResourceClass::kLarge).holds_ticket() ? 2 : 0;
    } catch (const Cancelled&) {
      return 1;
    }
  };
  EXPECT_EQ(in_child(child_waits), 0);
  EXPECT_EQ(in_child([&] { return in_child(child_waits); }), 0);
  // Without the variable, or with another ticket's, it is a job of its own.
  EXPECT_EQ(in_child([&] { return ::unsetenv(kLeaseVariable), child_waits(); }), 1);
  EXPECT_EQ(in_child([&] { return ::setenv(kLeaseVariable, "x", 1), child_waits(); }), 1);
  // A job inside the job.
  EXPECT_FALSE(take(ResourceClass::kStandard).holds_ticket());
  EXPECT_EQ(ledger().tickets.size(), 1U);
}

TEST_F(AdmissionTest, TheVariableGoesWithTheLease) {
  inherits = true;
  { const AdmissionLease lease = take(ResourceClass::kLarge); }
  EXPECT_EQ(std::getenv(kLeaseVariable), nullptr);
}

TEST_F(AdmissionTest, AVariableThatIsLeftOverCountsNot) {
  inherits = true;
  // Its ticket is gone.
  ::setenv(kLeaseVariable, new_ticket_id().c_str(), 1);
  EXPECT_TRUE(take(ResourceClass::kSmall).holds_ticket());
  // Its ticket waits, so it holds nothing.
  AdmissionTicket queued = other_ticket(now + 100, 1, false);
  add(queued);
  ::setenv(kLeaseVariable, queued.id.c_str(), 1);
  progress.on_wait = [&](const Waiting&) { progress.cancel(); };
  EXPECT_THROW(take(ResourceClass::kSmall), Cancelled);
}

TEST_F(AdmissionTest, ALeaseOfAStrangerCountsNot) {
  inherits = true;
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    while (true) ::pause();
  }
  AdmissionTicket ticket = other_ticket(1, 6, true);
  ticket.process = stranger;
  ticket.process_start_ticks = process_stat(stranger)->start_ticks;
  add(ticket);
  ::setenv(kLeaseVariable, ticket.id.c_str(), 1);
  progress.on_wait = [&](const Waiting&) { progress.cancel(); };
  EXPECT_THROW(take(ResourceClass::kSmall), Cancelled);
  ::kill(stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
}

// ---- Snapshots ----------------------------------------------------------------------------------

TEST_F(AdmissionTest, ASnapshotCreatesNothing) {
  const AdmissionSnapshot snapshot = queue().snapshot();
  EXPECT_EQ(snapshot.capacity_permits, 6);
  EXPECT_EQ(snapshot.active_permits, 0);
  EXPECT_TRUE(snapshot.active.empty() && snapshot.queued.empty());
  EXPECT_FALSE(fs::exists(ledger_folder()));
}

TEST_F(AdmissionTest, ASnapshotListsWhoRunsAndWhoWaits) {
  const AdmissionLease running = take(ResourceClass::kLarge);
  add(other_ticket(now + 1, 2, false));
  const AdmissionSnapshot snapshot = queue().snapshot();
  EXPECT_EQ(snapshot.active_permits, 6);
  ASSERT_EQ(snapshot.active.size(), 1U);
  ASSERT_EQ(snapshot.queued.size(), 1U);
  EXPECT_EQ(snapshot.active[0].id, running.ticket());
  EXPECT_EQ(snapshot.queued[0].label, "other job");
}

}  // namespace
}  // namespace mere
