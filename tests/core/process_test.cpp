#include "core/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mere {
namespace {

TEST(Process, ReadsTheLineOfAProcessWhateverItsName) {
  const std::string fields = " S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 987654321 1000 200";
  for (const char* name : {"(mere.run)", "(a b)", "(a) S 1 (b)", "())"}) {
    const auto stat = parse_process_stat(std::string("4711 ") + name + fields);
    ASSERT_TRUE(stat) << name;
    EXPECT_EQ(stat->state, 'S');
    EXPECT_EQ(stat->parent, 7);
    EXPECT_EQ(stat->threads, 3);
    EXPECT_EQ(stat->start_ticks, 987654321U);
  }
  for (const char* broken : {"", "1", "1 (x", "1 (x) S", "1 (x) S 1 1 1"}) {
    EXPECT_FALSE(parse_process_stat(broken)) << broken;
  }
}

TEST(Process, KnowsItselfAndItsAncestors) {
  const auto self = process_stat(::getpid());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_TRUE(process_is_alive(::getpid(), std::nullopt));
  EXPECT_TRUE(process_is_alive(::getpid(), self->start_ticks));
  EXPECT_TRUE(is_self_or_ancestor(::getpid()));
  EXPECT_TRUE(is_self_or_ancestor(::getppid()));
  EXPECT_FALSE(boot_id().empty());
  EXPECT_EQ(boot_id(), boot_id());
}

// The number of a process that ended is given to another one some day.
TEST(Process, AReusedNumberIsAnotherProcess) {
  EXPECT_FALSE(process_is_alive(::getpid(), process_stat(::getpid())->start_ticks + 1));
}

TEST(Process, AChildIsAliveUntilItEndsAndIsNoAncestor) {
  const pid_t child = ::fork();
  if (child == 0) {
    while (true) ::pause();
  }
  EXPECT_TRUE(process_is_alive(child, std::nullopt));
  EXPECT_FALSE(is_self_or_ancestor(child));
  ::kill(child, SIGKILL);
  // It ended, though this process has not asked for its status yet.
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(process_stat(child)->state, 'Z');
  EXPECT_FALSE(process_is_alive(child, std::nullopt));
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_is_alive(child, std::nullopt));
  EXPECT_FALSE(process_stat(child));
}

TEST(Process, NumbersThatNoProcessHas) {
  for (const pid_t pid : {0, -1, -4711}) EXPECT_FALSE(process_is_alive(pid, std::nullopt));
}

}  // namespace
}  // namespace mere
