// Randomised fault runs. Each begins with an empty store, meets faults and kills, and must end,
// after at most three more pulls, with a store whose every file has the hash of its name. A watcher
// looks at every instant it can get whether anything under a final name is not whole.
//
//   MERE_FAULT_RUNS=200   runs (default 20)
//   MERE_FAULT_SEED=1     first seed
#include <csignal>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pull_setup.h"

#include "catalog/content_hash.h"
#include "catalog/names.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr const char* kRepository = "tests/faults";
constexpr const char* kId = "image-faults";

int number_from(const char* variable, int fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::atoi(text);
}

// Hash of a blob by the kind that its name is.
std::string content_hash(const fs::path& file, bool git) {
  const std::string bytes = read_file(file, size_t{64} << 20);
  return git ? FakeHub::git_blob_hash(bytes) : sha256_hex(bytes);
}

// Looks at blobs/ and models/ all the time while it lives.
class Watcher {
 public:
  Watcher(fs::path hub, fs::path models)
      : hub_(std::move(hub)), models_(std::move(models)), thread_([this] { watch(); }) {}
  ~Watcher() { stop(); }

  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const std::string& problem() const { return problem_; }
  int64_t looks() const { return looks_; }

 private:
  void watch() {
    while (!stopping_ && problem_.empty()) {
      look_at_blobs();
      look_at_models();
      ++looks_;
    }
  }

  void look_at_blobs() {
    std::error_code ec;
    const fs::path blobs = hub_ / "models--tests--faults/blobs";
    for (fs::directory_iterator it(blobs, ec), end; !ec && it != end; it.increment(ec)) {
      const std::string name = it->path().filename().string();
      if (!is_blob_name(name)) continue;
      struct stat st {};
      if (::lstat(it->path().c_str(), &st) != 0) continue;
      auto& seen = seen_[name];
      // A file is hashed when it appears, and again when it is another one.
      if (seen == std::pair(st.st_ino, st.st_size)) continue;
      try {
        if (content_hash(it->path(), name.size() == 40) != name) {
          problem_ = "half or wrong blob " + name;
        }
        seen = {st.st_ino, st.st_size};
      } catch (const Error&) {
      }
    }
  }

  void look_at_models() {
    std::error_code ec;
    for (fs::directory_iterator it(models_, ec), end; !ec && it != end; it.increment(ec)) {
      if (it->path().filename().string()[0] == '.') continue;
      if (!is_installed_whole(it->path(), kId)) problem_ = "half install";
    }
  }

  fs::path hub_, models_;
  std::atomic<bool> stopping_{false};
  std::string problem_;
  std::atomic<int64_t> looks_{0};
  std::map<std::string, std::pair<ino_t, off_t>> seen_;
  std::thread thread_;
};

class FaultRun {
 public:
  explicit FaultRun(unsigned seed) : random_(seed) {
    hub_.add(kRepository, "model_index.json", R"({"_class_name": "Flux2KleinPipeline"})");
    hub_.add(kRepository, "config.json", random_bytes(3000, seed + 1));
    for (int i = 0; i < 3; ++i) {
      const auto size = static_cast<size_t>(pick(1, 1'500'000));
      hub_.add(kRepository, "weights/" + std::to_string(i), random_bytes(size, seed + 10 + i),
               true);
    }
  }

  void run() {
    const Watcher watcher(hub_dir(), models_dir());
    {
      faults_left_ = pick(1, 4);
      hub_.on_request([this](const FakeRequest& request) { return next_fault(request); });
      // Killed twice at most; in between and afterwards it meets faults.
      const int kills = pick(0, 2);
      slow_ = true;
      for (int i = 0; i < kills; ++i) pull_and_kill(pick(0, 150));
      slow_ = false;
      pull();
    }
    hub_.on_request({});
    int pulls = 0;
    while (!whole() && pulls < 3) {
      pull();
      ++pulls;
    }
    extra_pulls = pulls;
    EXPECT_TRUE(whole()) << output_;
    check_store();
    const_cast<Watcher&>(watcher).stop();
    EXPECT_EQ(watcher.problem(), "");
    EXPECT_GT(watcher.looks(), 0);
    EXPECT_EQ(output_.find(kTestToken), std::string::npos);
    EXPECT_EQ(output_.find("SECRET"), std::string::npos);
    EXPECT_EQ(output_.find("unexpected"), std::string::npos) << output_;
    for (const FakeRequest& request : hub_.requests()) {
      EXPECT_FALSE(request.store && request.has("authorization"));
    }
  }

  // What happened, so that a run of runs can tell that it tested something.
  int killed = 0;        // processes that the kill found at work
  int failed_pulls = 0;  // that ended with an error
  int extra_pulls = 0;
  int faults = 0;

 private:
  fs::path hub_dir() const { return folder_.path() / "hub"; }
  fs::path models_dir() const { return folder_.path() / "models"; }
  bool whole() const { return is_installed_whole(models_dir() / kId, kId); }

  int pick(int low, int high) {
    const std::lock_guard lock(mutex_);
    return std::uniform_int_distribution<int>(low, high)(random_);
  }

  FakeFault next_fault(const FakeRequest& request) {
    FakeFault fault = random_fault(request);
    // Slow enough for a kill to hit the middle of a file.
    if (slow_) fault.bytes_per_s = 10'000'000;
    return fault;
  }

  FakeFault random_fault(const FakeRequest& request) {
    if (!request.is_file() || pick(0, 2) != 0 || faults_left_.fetch_sub(1) <= 0) return {};
    ++faults;
    const int at = pick(0, 1'500'000);
    switch (pick(0, 9)) {
      case 0:
      case 1:
      case 2:
        return {.cut_at = at};
      case 3:
        return {.corrupt_at = at};
      case 4:
        return {.etag = "\"changed-" + std::to_string(at) + "\""};
      case 5:
        return {.cut_at = at, .etag = "\"changed\"", .ignore_if_range = true};
      case 6:
        return {.status = pick(0, 1) == 0 ? 503 : 429, .retry_after = "1"};
      case 7:
        return {.cut_at = at, .ignore_range = true};
      case 8:
        return {.cut_at = at, .chunked = true};
      default:
        return {.cut_at = at, .corrupt_at = at / 2};
    }
  }

  pid_t start() {
    const std::string endpoint = hub_.endpoint();
    const std::string hub = hub_dir().string();
    const std::string models = models_dir().string();
    const std::string log = (folder_.path() / "log").string();
    const std::string token = std::string("HF_TOKEN=") + kTestToken;
    // With one try every fault ends the pull.
    const std::string tries = pick(0, 1) == 0 ? "1" : "3";
    const char* argv[] = {MERE_PULL_PROBE, endpoint.c_str(), hub.c_str(),
                          models.c_str(),  tries.c_str(),    nullptr};
    const char* envp[] = {token.c_str(), "HOME=/nonexistent", nullptr};
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(fd, STDOUT_FILENO);
      ::dup2(fd, STDERR_FILENO);
      ::execve(argv[0], const_cast<char**>(argv), const_cast<char**>(envp));
      ::_exit(127);
    }
    return pid;
  }

  void finish(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) ++killed;
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) ++failed_pulls;
    output_ += read_file(folder_.path() / "log", size_t{1} << 20);
  }

  void pull() { finish(start()); }

  void pull_and_kill(int after_ms) {
    const pid_t pid = start();
    std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
    ::kill(pid, SIGKILL);
    finish(pid);
  }

  void check_store() const {
    int blobs = 0;
    for (const auto& each : fs::directory_iterator(hub_dir() / "models--tests--faults" / "blobs")) {
      const std::string name = each.path().filename().string();
      EXPECT_TRUE(is_blob_name(name)) << "left behind: " << name;
      EXPECT_EQ(content_hash(each.path(), name.size() == 40), name);
      ++blobs;
    }
    EXPECT_EQ(blobs, 5);
    const Json manifest = parse_json_file(models_dir() / kId / "mererun_model.json");
    for (const Json& file : manifest["files"]) {
      EXPECT_EQ(sha256_file(models_dir() / kId / file["path"].get<std::string>()),
                file["sha256"].get<std::string>());
    }
  }

  std::mutex mutex_;
  std::mt19937 random_;
  TemporaryFolder folder_;
  std::atomic<int> faults_left_{0};
  std::atomic<bool> slow_{false};
  std::string output_;
  FakeHub hub_;
};

TEST(PullFaultRuns, EndWithAWholeStore) {
  const int runs = number_from("MERE_FAULT_RUNS", 20);
  const int first = number_from("MERE_FAULT_SEED", 1);
  int faults = 0, killed = 0, failed = 0, most_extra = 0;
  for (int i = 0; i < runs; ++i) {
    SCOPED_TRACE("seed " + std::to_string(first + i));
    FaultRun run(static_cast<unsigned>(first + i));
    run.run();
    if (HasFailure()) return;
    faults += run.faults;
    killed += run.killed;
    failed += run.failed_pulls;
    most_extra = std::max(most_extra, run.extra_pulls);
  }
  std::printf("%d runs: %d faults, %d kills at work, %d failed pulls, at most %d more pulls\n",
              runs, faults, killed, failed, most_extra);
  EXPECT_GT(faults, runs / 2);
  EXPECT_GT(killed, runs / 10);
  EXPECT_GT(failed, runs / 10);
}

}  // namespace
}  // namespace mere
