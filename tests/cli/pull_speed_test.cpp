// Speed and memory of a download beside curl's, on the same file from the same server. Takes a
// minute and twice the room of the file, so it runs only when asked:
//
//   MERE_PULL_SPEED_MB=2000 cli_test --gtest_filter='PullSpeed.*'
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_hub.h"
#include "temporary_folder.h"

namespace mere {
namespace {

struct Timed {
  double seconds = 0;
  double cpu_seconds = 0;
  int64_t peak_rss_bytes = 0;
};

Timed run(std::vector<std::string> words, std::vector<std::string> variables) {
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
    ::execvpe(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  ::wait4(pid, &status, 0, &usage);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << words[0];
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return {took.count(), seconds(usage.ru_utime) + seconds(usage.ru_stime),
          int64_t{usage.ru_maxrss} * 1024};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

TEST(PullSpeed, IsNearCurlsAndMemoryStaysSmall) {
  const char* megabytes = std::getenv("MERE_PULL_SPEED_MB");
  if (megabytes == nullptr) GTEST_SKIP() << "runs with MERE_PULL_SPEED_MB=2000";
  const TemporaryFolder folder;
  const fs::path source = folder.path() / "source";
  {
    std::mt19937_64 random(1);
    std::vector<uint64_t> block(125'000);  // 1 MB
    for (uint64_t& word : block) word = random();
    std::ofstream out(source, std::ios::binary);
    for (int i = 0; i < std::atoi(megabytes); ++i) {
      block[0] = static_cast<uint64_t>(i);
      out.write(reinterpret_cast<const char*>(block.data()), 1'000'000);
    }
  }
  FakeHub hub;
  hub.add_from_disk("tests/large", "model.safetensors", source);
  folder.write("catalog.json",
               R"({"models": [{"id": "text-large", "category": "text",
                   "sources": [{"repository": "tests/large", "revision": "main"}]}]})");
  const std::string url = hub.endpoint() + "/tests/large/resolve/" +
                          FakeHub::commit_of("tests/large") + "/model.safetensors";
  const std::vector<std::string> variables = {
      "PATH=/usr/bin:/bin",
      "HOME=/nonexistent",
      "HF_ENDPOINT=" + hub.endpoint(),
      "MERERUN_CATALOG=" + (folder.path() / "catalog.json").string(),
      "MERERUN_HUB_CACHE=" + (folder.path() / "hub").string(),
      "MERERUN_MODELS_DIR=" + (folder.path() / "models").string()};
  std::vector<double> curl, synced, ours;
  int64_t peak = 0;
  for (int round = 0; round < 5; ++round) {
    const std::string target = (folder.path() / "curled").string();
    const auto fresh = [&] {
      std::error_code ec;
      fs::remove(target, ec);
      fs::remove_all(folder.path() / "hub", ec);
      fs::remove_all(folder.path() / "models", ec);
      ::sync();
    };
    fresh();
    const Timed curled = run({"curl", "-sfL", "-o", target, url}, variables);
    curl.push_back(curled.seconds);
    fresh();
    synced.push_back(
        run({"sh", "-c", "curl -sfL -o \"$0\" \"$1\" && sync \"$0\"", target, url}, variables)
            .seconds);
    fresh();
    const Timed pulled = run({MERE_PROGRAM, "model", "pull", "text-large", "-q"}, variables);
    ours.push_back(pulled.seconds);
    peak = std::max(peak, pulled.peak_rss_bytes);
    std::printf("curl %.2f s (cpu %.2f), curl and sync %.2f s, model pull %.2f s (cpu %.2f)\n",
                curl.back(), curled.cpu_seconds, synced.back(), ours.back(), pulled.cpu_seconds);
  }
  std::printf(
      "medians: curl %.2f s, curl and sync %.2f s, model pull %.2f s; speed %.0f %% of curl, "
      "%.0f %% of curl and sync; peak RSS %.1f MB\n",
      median(curl), median(synced), median(ours), 100 * median(curl) / median(ours),
      100 * median(synced) / median(ours), static_cast<double>(peak) / 1e6);
  EXPECT_LT(peak, 100'000'000);
  // curl leaves the bytes to the system; a pull ends when they are on the disk.
  EXPECT_GE(median(synced) / median(ours), 0.8);
}

}  // namespace
}  // namespace mere
