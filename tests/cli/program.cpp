#include "program.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <signal.h>
#include <stdexcept>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <thread>
#include <unistd.h>

namespace mere {
namespace {

constexpr std::chrono::seconds kTimeout{120};

std::vector<std::string> environment(const fs::path& root) {
  std::vector<std::string> variables = {
      "HOME=" + (root / "home").string(), "XDG_DATA_HOME=" + (root / "data").string(),
      "XDG_CACHE_HOME=" + (root / "cache").string(), "TERM=dumb", "PATH=/usr/bin:/bin"};
  // What a sanitizer build or a processor cap needs to reach the program.
  for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "MERERUN_CPU_ISA",
                           "OMP_NUM_THREADS", "LD_LIBRARY_PATH"}) {
    if (const char* value = ::getenv(name)) variables.push_back(std::string(name) + "=" + value);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Both ends of a pipe: {to read, to write}.
std::array<int, 2> open_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  return ends;
}

// The same with a terminal at the end that is written; bytes pass unchanged.
std::array<int, 2> open_terminal(int columns) {
  const int reader = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (reader < 0 || ::grantpt(reader) != 0 || ::unlockpt(reader) != 0) {
    throw std::runtime_error("posix_openpt");
  }
  const int writer = ::open(::ptsname(reader), O_RDWR | O_NOCTTY | O_CLOEXEC);
  termios settings{};
  ::tcgetattr(writer, &settings);
  ::cfmakeraw(&settings);
  ::tcsetattr(writer, TCSANOW, &settings);
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  ::ioctl(writer, TIOCSWINSZ, &size);
  return {reader, writer};
}

// Appends what is there to read; false at the end of the stream.
bool drain(int fd, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n <= 0) return false;
  text.append(buffer.data(), static_cast<size_t>(n));
  return true;
}

}  // namespace

Program::Program() {
  std::string name = (fs::temp_directory_path() / "mere-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  root_ = fs::canonical(name);
  fs::create_directories(folder());
}

Program::~Program() {
  std::error_code ec;
  fs::remove_all(root_, ec);
}

ProgramResult Program::run(const std::vector<std::string>& arguments, const Watch& watch,
                           const ProgramSetup& setup) const {
  std::vector<std::string> words = {MERE_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  // The first of two variables with one name counts.
  std::vector<std::string> variables = setup.variables;
  std::ranges::copy(environment(root_), std::back_inserter(variables));
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);
  const std::string work = folder().string();
  const std::array<int, 2> out = open_pipe();
  const std::array<int, 2> err =
      setup.terminal_columns < 0 ? open_pipe() : open_terminal(setup.terminal_columns);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
    ::dup2(setup.stdout_path.empty() ? out[1] : ::open(setup.stdout_path.c_str(), O_WRONLY),
           STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    if (setup.file_size_limit > 0) {
      const auto limit = static_cast<rlim_t>(setup.file_size_limit);
      const rlimit limits{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &limits);
    }
    if (::chdir(work.c_str()) == 0) ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  ProgramResult result;
  std::array<pollfd, 2> polls = {pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}};
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (polls[0].fd >= 0 || polls[1].fd >= 0) {
    if (std::chrono::steady_clock::now() > deadline) ::kill(pid, SIGKILL);
    if (::poll(polls.data(), polls.size(), 1000) <= 0) continue;
    if (polls[0].revents != 0 && !drain(out[0], result.out)) polls[0].fd = -1;
    if (polls[1].revents != 0) {
      if (!drain(err[0], result.err)) polls[1].fd = -1;
      if (watch) watch(pid, result.err);
    }
  }
  ::close(out[0]);
  ::close(err[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

ProgramResult Program::generate(const std::vector<std::string>& arguments, const Watch& watch,
                                const ProgramSetup& setup) const {
  std::vector<std::string> words = {"image", "generate", "--model",
                                    std::string(MERE_MODELS) + "/image-emoji-nano"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run(words, watch, setup);
}

fs::path Program::write(const std::string& name, const std::string& bytes) const {
  const fs::path file = folder() / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
  return file;
}

std::string Program::read(const std::string& name) const {
  return read_file(folder() / name, size_t{64} << 20);
}

std::vector<std::string> Program::files() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder())) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace mere
