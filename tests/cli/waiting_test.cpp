// A job that waits for others: the whole program, on the machine that runs the tests. Where that
// one has no room for a job at all, there is nothing to wait for.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "program.h"

#include "core/file_lock.h"
#include "core/json.h"
#include "core/process.h"
#include "core/system.h"
#include "engine/admission_ledger.h"
#include "engine/host_sample.h"

namespace mere {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class WaitingProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const HostSample host = sample_host(folder());
    if (host.disk.value_or(0) < minimum_disk_bytes(host) || host.available.value_or(0) < 6 * kGib) {
      GTEST_SKIP() << "this machine starts no job that needs a ticket";
    }
  }

  fs::path folder() const { return program.models().parent_path() / "admission"; }
  fs::path state() const { return folder() / "state.json"; }

  // A job of this process holds every permit.
  AdmissionTicket take_all_permits() {
    AdmissionTicket ticket;
    ticket.id = new_ticket_id();
    ticket.process = ::getpid();
    ticket.process_start_ticks = process_stat(::getpid())->start_ticks;
    ticket.boot_session = boot_id();
    ticket.label = "other job";
    ticket.resource_class = ResourceClass::kLarge;
    ticket.permits = 6;
    ticket.queued_at = ledger_time();
    ticket.active = true;
    write_ledger(state(), {{ticket}});
    return ticket;
  }
  void give_permits_back(const AdmissionTicket& held) {
    const FileLock lock = FileLock::acquire(folder() / "state.lock");
    AdmissionLedger ledger = read_ledger(state());
    std::erase_if(ledger.tickets, [&](const AdmissionTicket& t) { return t.id == held.id; });
    write_ledger(state(), ledger);
  }
  // A picture so large that it needs a ticket; it is never drawn.
  ProgramResult draw(const std::vector<std::string>& options, const Program::Watch& watch,
                     const ProgramSetup& setup = {}) {
    std::vector<std::string> words = {
        "image",    "generate", "--model",  std::string(MERE_FIXTURES) + "/klein/model",
        "--width",  "4096",     "--height", "4096",
        "--prompt", "x",        "--output", "x.png"};
    words.insert(words.end(), options.begin(), options.end());
    return program.run(words, watch, setup);
  }

  Program program;
};

TEST_F(WaitingProgram, SaysThatItWaitsAndLeavesTheQueueWhenItIsStopped) {
  take_all_permits();
  size_t seen = 0;
  const ProgramResult result = draw({}, [&](pid_t pid, const std::string& err) {
    if (seen > 0 || !contains(err, "position 1\n")) return;
    seen = read_ledger(state()).tickets.size();
    ::kill(pid, SIGINT);
  });
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_EQ(seen, 2U);
  EXPECT_TRUE(contains(result.err, "waiting to start image generate: 6 of ")) << result.err;
  EXPECT_TRUE(contains(result.err, "mere.run: cancelled\n"));
  EXPECT_FALSE(contains(result.err, "Loading"));
  EXPECT_EQ(read_ledger(state()).tickets.size(), 1U);
}

TEST_F(WaitingProgram, StartsWhenItIsItsTurnAndTellsProgramsSo) {
  const AdmissionTicket held = take_all_permits();
  bool gave_back = false;
  bool stopped = false;
  const ProgramResult result = draw({"--progress-json"}, [&](pid_t pid, const std::string& err) {
    if (!gave_back && contains(err, "\"position\":1,")) {
      gave_back = true;
      give_permits_back(held);
    }
    if (!stopped && contains(err, "loadingTransformer")) {
      stopped = true;
      ::kill(pid, SIGINT);
    }
  });
  EXPECT_EQ(result.status, 130) << result.err;
  const std::string first = result.err.substr(0, result.err.find('\n'));
  EXPECT_TRUE(first.starts_with(R"({"event":"progress","stage":"waiting","step":0,"total_steps":0,)"
                                R"("position":1,"queued":1,"active_permits":6,)"))
      << result.err;
  EXPECT_EQ(parse_json(first, "stderr").at("reason"), "permits");
  EXPECT_TRUE(contains(result.err, "\"position\":0,"));
  EXPECT_LT(result.err.find("\"position\":0,"), result.err.find("loading"));
  EXPECT_TRUE(read_ledger(state()).tickets.empty());
}

TEST_F(WaitingProgram, AChildOfTheHolderDoesNotWait) {
  const AdmissionTicket held = take_all_permits();
  bool stopped = false;
  const ProgramResult result = draw({},
                                    [&](pid_t pid, const std::string& err) {
                                      if (!stopped && contains(err, "Loading transformer"))
                                        ::kill(pid, SIGINT), stopped = true;
                                    },
                                    {.variables = {"MERERUN_ADMISSION_LEASE=" + held.id}});
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_FALSE(contains(result.err, "waiting")) << result.err;
  EXPECT_EQ(read_ledger(state()).tickets.size(), 1U);
}

TEST_F(WaitingProgram, StatusShowsTheJobs) {
  AdmissionTicket held = take_all_permits();
  AdmissionTicket queued = held;
  queued.id = new_ticket_id();
  queued.label = "queued\x1b job";
  queued.queued_at += 1;
  queued.active = false;
  write_ledger(state(), {{held, queued}});
  const std::string text = program.run({"status", "--port", "1"}).out;
  EXPECT_TRUE(contains(text,
                       "permits in use, 1 queued\n    running  other job  large, 6 permits, "
                       "process " +
                           std::to_string(::getpid())))
      << text;
  EXPECT_TRUE(contains(text, "    waiting  queued? job  large, 6 permits")) << text;
  const Json json = parse_json(program.run({"status", "--port", "1", "--json"}).out, "stdout");
  const Json& active = json.at("admission").at("active").at(0);
  EXPECT_EQ(active.at("id"), held.id);
  EXPECT_EQ(active.at("processID"), ::getpid());
  EXPECT_EQ(active.at("queuedAt").get<double>(), held.queued_at);
  EXPECT_EQ(json.at("admission").at("queued").at(0).at("id"), queued.id);
}

// The model that ships with the program is drawn with however long the queue is.
TEST(WaitingEmbedded, DoesNotWait) {
  const Program program;
  const fs::path state = program.models().parent_path() / "admission/state.json";
  write_file_atomic(state, "{damaged");
  const ProgramResult result = program.generate({"-p", "a cat", "-o", "cat.png", "-q"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace mere
