#include "cli/server_probe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "core/error.h"

namespace mere::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxReplyBytes = size_t{1} << 20;
constexpr size_t kMaxModels = 1000;
constexpr double kMinTimeoutSeconds = 0.1;
constexpr double kMaxTimeoutSeconds = 600;
constexpr const char* kNeedsKey = "requires API key";

// An IPv6 address without its brackets.
std::string bare_host(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

struct Reply {
  int status = 0;
  std::string body;
  std::string problem;  // there was no answer, or none that can be used
};

// ---- One GET over a socket ----------------------------------------------------------------------
//
// Of HTTP as little as a question to our own server needs. An HTTP library would cost every start
// of the program, also of those that ask nothing, some 5 ms.

// Why a question failed; caught in get().
struct Failure {
  std::string what;
};

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(int problem) { throw Failure{std::strerror(problem)}; }

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  if (left.count() <= 0) throw Failure{"no answer in time"};
  return static_cast<int>(left.count());
}

void wait_for(int fd, short events, Clock::time_point deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) fail(errno);
  }
}

struct AddressDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressDeleter>;

// A name server that does not answer would hold getaddrinfo() up for longer than the deadline.
Addresses find_host(const std::string& host, const std::string& port, Clock::time_point deadline) {
  struct Question {
    std::string host, port;
    addrinfo hints{};
    gaicb entry{};
  };
  auto question = std::make_unique<Question>();
  question->host = host;
  question->port = port;
  question->hints.ai_socktype = SOCK_STREAM;
  question->entry.ar_name = question->host.c_str();
  question->entry.ar_service = question->port.c_str();
  question->entry.ar_request = &question->hints;
  gaicb* entry = &question->entry;
  int problem = ::getaddrinfo_a(GAI_NOWAIT, &entry, 1, nullptr);
  while (problem == 0 && ::gai_error(entry) == EAI_INPROGRESS) {
    const int left = milliseconds_until(deadline);
    const timespec most{left / 1000, left % 1000 * 1'000'000L};
    if (::gai_suspend(&entry, 1, &most) == EAI_AGAIN && ::gai_cancel(entry) != EAI_CANCELED) {
      // Still at work on it in a thread of its own: what it writes to must stay.
      (void)question.release();
      throw Failure{"the host's address was not found in time"};
    }
  }
  if (problem == 0) problem = ::gai_error(entry);
  if (problem != 0) throw Failure{::gai_strerror(problem)};
  return Addresses(question->entry.ar_result);
}

// The first address that takes the connection.
Socket connect_to(const addrinfo* addresses, Clock::time_point deadline) {
  int problem = EHOSTUNREACH;
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) {
      problem = errno;
      continue;
    }
    if (::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0) return socket;
    problem = errno;
    if (problem != EINPROGRESS) continue;
    wait_for(socket.get(), POLLOUT, deadline);
    socklen_t size = sizeof problem;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &size);
    if (problem == 0) return socket;
  }
  fail(problem);
}

void send_all(int fd, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN || errno == EINTR) {
      wait_for(fd, POLLOUT, deadline);
    } else {
      fail(errno);
    }
  }
}

// Until the other side closes, for the question was asked in HTTP/1.0.
std::string receive_all(int fd, Clock::time_point deadline) {
  std::string text;
  std::array<char, 16'384> buffer{};
  while (true) {
    wait_for(fd, POLLIN, deadline);
    const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (n == 0) return text;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0) fail(errno);
    text.append(buffer.data(), static_cast<size_t>(n));
    if (text.size() > kMaxReplyBytes) throw Failure{"the answer is too large"};
  }
}

Reply parse_reply(const std::string& text) {
  Reply reply;
  const std::string_view head = "HTTP/1.";
  const size_t end = text.find("\r\n\r\n");
  const size_t space = text.find(' ');
  if (!text.starts_with(head) || end == std::string::npos || space > head.size() + 1) {
    throw Failure{"the answer is not HTTP"};
  }
  const char* digits = text.data() + space + 1;
  const auto [rest, problem] = std::from_chars(digits, digits + 3, reply.status);
  if (problem != std::errc() || rest != digits + 3) throw Failure{"the answer is not HTTP"};
  std::string headers = text.substr(0, end);
  std::ranges::transform(headers, headers.begin(), [](unsigned char c) { return std::tolower(c); });
  if (headers.find("\r\ntransfer-encoding:") != std::string::npos) {
    throw Failure{"the answer is in pieces, as HTTP/1.0 has none"};
  }
  reply.body = text.substr(end + 4);
  return reply;
}

// What follows "http://" and goes into the Host header.
std::string authority_of(const std::string& host, const std::string& port) {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + port;
}

Reply get(const std::string& path, const ProbeRequest& request) {
  const double seconds =
      std::clamp(request.timeout_seconds, kMinTimeoutSeconds, kMaxTimeoutSeconds);
  const Clock::time_point deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  const std::string host = bare_host(request.host);
  const std::string port = std::to_string(request.port);
  try {
    const Addresses addresses = find_host(host, port, deadline);
    const Socket socket = connect_to(addresses.get(), deadline);
    std::string question = "GET " + path + " HTTP/1.0\r\nHost: " + authority_of(host, port) +
                           "\r\nAccept: application/json\r\nConnection: close\r\n";
    if (!request.api_key.empty()) question += "Authorization: Bearer " + request.api_key + "\r\n";
    send_all(socket.get(), question + "\r\n", deadline);
    return parse_reply(receive_all(socket.get(), deadline));
  } catch (const Failure& failure) {
    Reply reply;
    reply.problem = failure.what;
    return reply;
  }
}

// ---- What the replies say -----------------------------------------------------------------------

// Why a reply is no good; empty when it is.
std::string problem_of(const Reply& reply) {
  if (!reply.problem.empty()) return reply.problem;
  if (reply.status == 401 || reply.status == 403) return kNeedsKey;
  return reply.status == 200 ? "" : "HTTP " + std::to_string(reply.status);
}

// The JSON of a reply; nullopt with `problem` when there is none.
std::optional<Json> json_of(const Reply& reply, const char* path, std::string& problem) {
  problem = problem_of(reply);
  if (!problem.empty()) return std::nullopt;
  try {
    Json json = parse_json(reply.body, path);
    if (json.is_object()) return json;
    problem = "not a JSON object";
  } catch (const Error&) {
    problem = "not valid JSON";
  }
  return std::nullopt;
}

// The texts `key` of the objects of list `list`, those with `flag` alone when it is not null.
std::vector<std::string> names_in(const Json& json, const char* list, const char* flag) {
  std::vector<std::string> names;
  const auto items = json.find(list);
  if (items == json.end() || !items->is_array()) return names;
  for (const Json& item : *items) {
    if (!item.is_object() || names.size() >= kMaxModels) continue;
    const auto id = item.find("id");
    const auto set = flag == nullptr ? item.end() : item.find(flag);
    const bool counts = flag == nullptr || (set != item.end() && *set == Json(true));
    if (counts && id != item.end() && id->is_string()) {
      names.push_back(printable(id->get<std::string>()));
    }
  }
  return names;
}

bool is_host_character(unsigned char c) {
  return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':';
}

void check_address(const ProbeRequest& request) {
  const std::string host = bare_host(request.host);
  if (host.empty() || host.size() > 255 || host[0] == '-' ||
      !std::ranges::all_of(host, is_host_character)) {
    throw UsageError{{"value_invalid", "--host",
                      "--host: \"" + printable(request.host, 60) + "\" is not a name or address",
                      "for example 127.0.0.1"}};
  }
  if (request.port < 1 || request.port > 65535) {
    throw UsageError{{"value_out_of_range", "--port",
                      "--port must be from 1 to 65535, not " + std::to_string(request.port), ""}};
  }
}

void check_key(const std::string& key) {
  const bool clean = std::ranges::all_of(key, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
  if (!clean || key.size() > 4096) {
    throw UsageError{{"value_invalid", "--api-key",
                      "the API key holds characters that no key has, or is too long",
                      "it comes from --api-key or MERERUN_API_KEY"}};
  }
}

}  // namespace

ServerProbe probe_server(const ProbeRequest& request) {
  check_address(request);
  check_key(request.api_key);
  ServerProbe probe;
  probe.url = "http://" + authority_of(bare_host(request.host), std::to_string(request.port));
  probe.detail = problem_of(get("/health", request));
  probe.up = probe.detail.empty() || probe.detail == kNeedsKey;
  if (!probe.up) return probe;
  const char* path = "/runtime/status";
  probe.runtime = json_of(get(path, request), path, probe.runtime_detail);
  path = "/v1/models";
  const auto models = json_of(get(path, request), path, probe.models_detail);
  // The list is of models that can be asked for; the status tells which of them are in memory.
  if (probe.runtime && probe.runtime->contains("models")) {
    probe.loaded_models = names_in(*probe.runtime, "models", "loaded");
  } else if (models) {
    probe.loaded_models = names_in(*models, "data", nullptr);
  }
  return probe;
}

}  // namespace mere::cli
