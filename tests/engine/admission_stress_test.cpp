// Many processes that come, wait, run, are killed and change their minds: what must hold at every
// instant is checked by somebody who does not take part.
//
// Permits in use are counted by the kernel: a job that was admitted locks one file for each of its
// permits, of as many files as the machine has permits. Locks of a killed job are gone before its
// process is, so a file that is missing is a permit given twice. A reader parses the ledger all the
// while without its lock.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <new>
#include <random>
#include <signal.h>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>

#include "admission_fixture.h"

#include "core/error.h"
#include "core/file_lock.h"

namespace mere {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCapacity = 4;
constexpr std::chrono::seconds kDeadline{120};

enum JobStatus { kDone = 0, kTwiceGiven = 40, kFailed = 41, kGaveUp = 42 };

// Counted by all processes.
struct Counters {
  std::atomic<int> done, killed, given_up, ended_holding, twice_given, failed;
};

int variable_or(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atoi(text);
}

class AdmissionStress : public AdmissionFixture {
 protected:
  void SetUp() override {
    host = host_with(128, 100);
    ASSERT_EQ(capacity_permits(host.physical), kCapacity);
    void* memory = ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    counters_ = new (memory) Counters{};
  }
  void TearDown() override { ::munmap(counters_, sizeof(Counters)); }

  // Locks a file for each of `permits`; the descriptors, or fewer when there are not enough.
  std::vector<int> claim(int permits) {
    // One at a time: who looks at file after file could miss one that is given back meanwhile.
    const FileLock lock = FileLock::acquire(folder.path() / "claims.lock");
    std::vector<int> claimed;
    for (int i = 0; i < kCapacity && static_cast<int>(claimed.size()) < permits; ++i) {
      const fs::path path = folder.path() / ("permit-" + std::to_string(i));
      const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
        claimed.push_back(fd);
      } else {
        ::close(fd);
      }
    }
    return claimed;
  }

  // A job in a process of its own.
  int run_job(unsigned seed) {
    std::mt19937 random(seed);
    const auto of = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    AdmissionOptions options;
    options.folder = ledger_folder();
    options.sample = [this] { return host; };
    options.poll = std::chrono::milliseconds(2);
    options.inherits = false;
    constexpr std::array kMix = {ResourceClass::kSmall, ResourceClass::kSmall,
                                 ResourceClass::kStandard, ResourceClass::kStandard,
                                 ResourceClass::kLarge};
    const ResourceClass resource_class = kMix[static_cast<size_t>(of(kMix.size()))];
    int patience = of(10) == 0 ? 1 + of(10) : -1;  // one of ten gives up while it waits
    progress.on_wait = [&](const Waiting&) {
      if (--patience == 0) progress.cancel();
    };
    try {
      AdmissionLease lease = Admission(options).acquire(job(resource_class), progress);
      const int permits = permits_of(resource_class, kCapacity);
      const std::vector<int> claimed = claim(permits);
      if (static_cast<int>(claimed.size()) < permits) return kTwiceGiven;
      ::usleep(static_cast<useconds_t>(of(4000)));
      for (const int fd : claimed) ::close(fd);
      if (of(20) == 0) {
        ++counters_->ended_holding;  // ends as a crash does
        ::_exit(kDone);
      }
      lease.release();
      return kDone;
    } catch (const Cancelled&) {
      return kGaveUp;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "job: %s\n", e.what());
      return kFailed;
    }
  }

  // One after another; three of ten are killed at a random time.
  void run_lane(int lane, int jobs) {
    std::mt19937 random(static_cast<unsigned>(1000 + lane));
    for (int i = 0; i < jobs; ++i) {
      const unsigned seed = random();
      const pid_t pid = ::fork();
      if (pid == 0) ::_exit(run_job(seed));
      const bool kills = random() % 10 < 3;
      if (kills) {
        ::usleep(static_cast<useconds_t>(random() % 30'000));
        ::kill(pid, SIGKILL);
        // Sometimes it stays for a while as a process that has ended.
        ::usleep(static_cast<useconds_t>(random() % 2 * 5000));
      }
      int status = -1;
      ::waitpid(pid, &status, 0);
      if (WIFSIGNALED(status)) {
        ++counters_->killed;
      } else if (WEXITSTATUS(status) == kDone) {
        ++counters_->done;
      } else if (WEXITSTATUS(status) == kGaveUp) {
        ++counters_->given_up;
      } else {
        ++(WEXITSTATUS(status) == kTwiceGiven ? counters_->twice_given : counters_->failed);
      }
    }
  }

  // What a reader sees of the ledger: problems, or nothing.
  std::string look() {
    AdmissionLedger seen;
    try {
      seen = read_ledger(state());
    } catch (const std::exception& e) {
      return e.what();
    }
    if (seen.active_permits() > kCapacity) return "more permits than there are";
    most_tickets_ = std::max(most_tickets_, seen.tickets.size());
    // Whoever runs came before everybody who waits.
    bool waits = false;
    for (const AdmissionTicket& ticket : seen.tickets) {
      if (ticket.active && waits) return "a job was overtaken";
      waits |= !ticket.active;
    }
    return "";
  }

  Counters* counters_ = nullptr;
  size_t most_tickets_ = 0;
};

TEST_F(AdmissionStress, ManyProcessesAndRandomKills) {
  const int lanes = variable_or("MERERUN_STRESS_LANES", 8);
  const int jobs = variable_or("MERERUN_STRESS_JOBS", 50);
  const Clock::time_point start = Clock::now();
  std::vector<pid_t> running;
  for (int lane = 0; lane < lanes; ++lane) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      run_lane(lane, jobs);
      ::_exit(0);
    }
    running.push_back(pid);
  }
  int reads = 0;
  std::string problem;
  while (!running.empty() && Clock::now() - start < kDeadline) {
    for (int i = 0; i < 20; ++i, ++reads) {
      if (std::string found = look(); !found.empty() && problem.empty()) problem = found;
    }
    std::erase_if(running, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
  }
  EXPECT_TRUE(running.empty()) << "a job is stuck";
  for (const pid_t pid : running) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  EXPECT_EQ(problem, "");
  EXPECT_EQ(counters_->twice_given, 0);
  EXPECT_EQ(counters_->failed, 0);
  EXPECT_EQ(counters_->done + counters_->killed + counters_->given_up, lanes * jobs);
  EXPECT_GT(counters_->done, 0);
  // A last look leaves nothing of the dead.
  const AdmissionSnapshot snapshot = queue().snapshot();
  EXPECT_TRUE(snapshot.active.empty());
  EXPECT_TRUE(snapshot.queued.empty());
  EXPECT_TRUE(ledger().tickets.empty());
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf(
      "%d jobs in %.1f s: %d done (%d of them without giving their place back), %d killed, "
      "%d gave up; the ledger held up to %zu tickets and was read %d times\n",
      lanes * jobs, seconds, counters_->done.load(), counters_->ended_holding.load(),
      counters_->killed.load(), counters_->given_up.load(), most_tickets_, reads);
}

}  // namespace
}  // namespace mere
