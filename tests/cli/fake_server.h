// A server on a loopback port that gives prepared answers, one connection after another.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace mere {

class FakeServer {
 public:
  // The bytes to send for a request, e.g. "HTTP/1.0 200 OK\r\n\r\n{}"; none: nothing is ever sent.
  using Answer = std::function<std::string(const std::string& request)>;

  explicit FakeServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, generic, size) == 0 && ::listen(listener_, 8) == 0 &&
        ::getsockname(listener_, generic, &size) == 0) {
      port_ = ntohs(address.sin_port);
    }
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    stops_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    for (const int fd : silent_) ::close(fd);
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  int port() const { return port_; }
  std::vector<std::string> requests() {
    const std::lock_guard guard(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (!stops_) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      std::string request;
      char buffer[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
        if (n <= 0) break;
        request.append(buffer, static_cast<size_t>(n));
      }
      {
        const std::lock_guard guard(mutex_);
        requests_.push_back(request);
      }
      const std::string reply = answer_(request);
      if (reply.empty()) {
        silent_.push_back(fd);
        continue;
      }
      for (size_t at = 0; at < reply.size();) {
        const ssize_t n = ::send(fd, reply.data() + at, reply.size() - at, MSG_NOSIGNAL);
        if (n <= 0) break;
        at += static_cast<size_t>(n);
      }
      ::close(fd);
    }
  }

  Answer answer_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stops_ = false;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::vector<int> silent_;
  std::thread thread_;
};

}  // namespace mere
