#include "fake_hub.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <chrono>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>
#include <stdexcept>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

namespace mere {
namespace {

using Json = nlohmann::json;

int listen_on_any_port(int& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || ::bind(fd, plain, size) != 0 || ::listen(fd, 64) != 0 ||
      ::getsockname(fd, plain, &size) != 0) {
    throw std::runtime_error("fake hub: cannot listen");
  }
  port = ntohs(address.sin_port);
  return fd;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string sha1_hex(const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha1(), nullptr);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned int i = 0; i < length; ++i) out += {kHex[digest[i] >> 4], kHex[digest[i] & 15]};
  return out;
}

}  // namespace

struct FakeHub::Answer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string body{};
  const File* file = nullptr;  // its bytes from `start`
  int64_t start = 0;
  bool head = false;

  int64_t body_bytes() const {
    return file != nullptr ? file->size - start : static_cast<int64_t>(body.size());
  }
};

FakeHub::FakeHub()
    : hub_listener_(listen_on_any_port(hub_port_)),
      store_listener_(listen_on_any_port(store_port_)) {
  const std::lock_guard lock(mutex_);
  threads_.emplace_back([this] { accept_loop(hub_listener_, false); });
  threads_.emplace_back([this] { accept_loop(store_listener_, true); });
}

FakeHub::~FakeHub() {
  stopping_ = true;
  ::shutdown(hub_listener_, SHUT_RDWR);
  ::shutdown(store_listener_, SHUT_RDWR);
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : connections_) ::shutdown(fd, SHUT_RDWR);
  }
  for (size_t i = 0;; ++i) {
    std::thread thread;
    {
      const std::lock_guard lock(mutex_);
      if (i >= threads_.size()) break;
      thread = std::move(threads_[i]);
    }
    thread.join();
  }
  ::close(hub_listener_);
  ::close(store_listener_);
}

std::string FakeHub::endpoint() const { return "http://127.0.0.1:" + std::to_string(hub_port_); }
std::string FakeHub::store_endpoint() const {
  return "http://127.0.0.1:" + std::to_string(store_port_);
}

std::string FakeHub::commit_of(const std::string& repository) { return sha1_hex(repository); }

std::string FakeHub::git_blob_hash(const std::string& content) {
  return sha1_hex("blob " + std::to_string(content.size()) + '\0' + content);
}

void FakeHub::add(const std::string& repository, const std::string& path,
                  const std::string& content, bool large) {
  const std::lock_guard lock(mutex_);
  repositories_[repository][path] = {path,
                                     content,
                                     large ? sha256_hex(content) : git_blob_hash(content),
                                     {},
                                     static_cast<int64_t>(content.size()),
                                     large};
}

void FakeHub::add_from_disk(const std::string& repository, const std::string& path,
                            const fs::path& file) {
  const std::string etag = sha256_file(file);
  const std::lock_guard lock(mutex_);
  repositories_[repository][path] = {
      path, "", etag, file, static_cast<int64_t>(fs::file_size(file)), true};
}

void FakeHub::set_listing(const std::string& repository, const std::string& json) {
  const std::lock_guard lock(mutex_);
  listings_[repository] = json;
}

void FakeHub::set_page_size(size_t entries) {
  const std::lock_guard lock(mutex_);
  page_size_ = entries;
}

void FakeHub::set_hashes_listed(bool listed) {
  const std::lock_guard lock(mutex_);
  hashes_listed_ = listed;
}

void FakeHub::set_gate(const std::string& repository, const std::string& token, bool accepted) {
  const std::lock_guard lock(mutex_);
  gates_[repository] = {token, accepted};
}

void FakeHub::on_request(std::function<FakeFault(const FakeRequest&)> faults) {
  const std::lock_guard lock(faults_mutex_);
  faults_ = std::move(faults);
}

std::vector<FakeRequest> FakeHub::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FakeHub::accept_loop(int listener, bool store) {
  while (!stopping_) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      ::close(fd);
      return;
    }
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connections_.insert(fd);
    threads_.emplace_back([this, fd, store] {
      serve(fd, store);
      const std::lock_guard inner(mutex_);
      connections_.erase(fd);
      ::close(fd);
    });
  }
}

void FakeHub::serve(int fd, bool store) {
  std::string pending;
  for (;;) {
    size_t end = 0;
    while ((end = pending.find("\r\n\r\n")) == std::string::npos) {
      char buffer[8192];
      const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0 || pending.size() > 65536) return;
      pending.append(buffer, static_cast<size_t>(n));
    }
    const std::string head = pending.substr(0, end + 2);
    pending.erase(0, end + 4);
    FakeRequest request;
    request.store = store;
    size_t at = head.find("\r\n");
    const std::string line = head.substr(0, at);
    const size_t first = line.find(' ');
    const size_t second = line.rfind(' ');
    request.method = line.substr(0, first);
    const std::string target = line.substr(first + 1, second - first - 1);
    request.path = target.substr(0, target.find('?'));
    if (target.find('?') != std::string::npos) request.query = target.substr(target.find('?') + 1);
    for (at += 2; at < head.size();) {
      const size_t next = head.find("\r\n", at);
      const std::string header = head.substr(at, next - at);
      const size_t colon = header.find(':');
      if (colon != std::string::npos) {
        const size_t value = header.find_first_not_of(' ', colon + 1);
        request.headers[lower(header.substr(0, colon))] =
            value == std::string::npos ? "" : header.substr(value);
      }
      at = next + 2;
    }
    {
      const std::lock_guard lock(mutex_);
      request.number = static_cast<int>(requests_.size());
      requests_.push_back(request);
    }
    if (!answer(fd, request)) return;
  }
}

const FakeHub::File* FakeHub::find(const std::string& repository, const std::string& path) const {
  const auto files = repositories_.find(repository);
  if (files == repositories_.end()) return nullptr;
  const auto file = files->second.find(path);
  return file == files->second.end() ? nullptr : &file->second;
}

FakeHub::Answer FakeHub::list(const std::string& repository, const FakeRequest& request) {
  if (const auto given = listings_.find(repository); given != listings_.end()) {
    return {.body = given->second};
  }
  size_t begin = 0;
  if (const size_t cursor = request.query.find("cursor="); cursor != std::string::npos) {
    begin = std::stoul(request.query.substr(cursor + 7));
  }
  Json entries = Json::array();
  size_t index = 0;
  for (const auto& [path, file] : repositories_[repository]) {
    if (index >= begin && index < begin + page_size_) {
      Json entry = {{"type", "file"}, {"path", path}, {"size", file.size}};
      if (hashes_listed_) {
        entry["oid"] = file.large ? std::string(40, '1') : file.etag;
        if (file.large)
          entry["lfs"] = {{"oid", file.etag}, {"size", file.size}, {"pointerSize", 130}};
      }
      entries.push_back(entry);
    }
    ++index;
  }
  Answer answer{.body = entries.dump()};
  if (begin + page_size_ < index) {
    // As a mirror does that hands on the hub's own address.
    answer.headers.emplace_back("Link", "<https://huggingface.co/api/models/" + repository +
                                            "/tree/x?recursive=true&cursor=" +
                                            std::to_string(begin + page_size_) + ">; rel=\"next\"");
  }
  return answer;
}

FakeHub::Answer FakeHub::resolve(const std::string& repository, const std::string& path,
                                 const FakeRequest& request) {
  const File* file = find(repository, path);
  if (file == nullptr) {
    return {.status = 404, .headers = {{"X-Error-Code", "EntryNotFound"}}};
  }
  Answer answer;
  answer.headers.emplace_back("ETag", "\"" + file->etag + "\"");
  if (!request.store) {
    answer.headers.emplace_back("X-Repo-Commit", commit_of(repository));
    if (file->large) {
      answer.status = 302;
      answer.headers.emplace_back("X-Linked-ETag", "\"" + file->etag + "\"");
      answer.headers.emplace_back("X-Linked-Size", std::to_string(file->size));
      answer.headers.emplace_back(
          "Location", store_endpoint() + "/" + repository + "/" + path + "?signature=SECRET");
      return answer;
    }
  }
  answer.file = file;
  return answer;
}

FakeHub::Answer FakeHub::route(const FakeRequest& request) {
  const std::string path = unescaped(request.path);
  const size_t api = path.starts_with("/api/models/") ? 12 : 1;
  const size_t slash = path.find('/', api);
  const size_t end = slash == std::string::npos ? slash : path.find('/', slash + 1);
  if (end == std::string::npos) return {.status = 404};
  const std::string repository = path.substr(api, end - api);
  const std::string rest = path.substr(end + 1);
  if (!repositories_.contains(repository) && !listings_.contains(repository)) {
    return {.status = request.has("authorization") ? 404 : 401,
            .headers = {{"X-Error-Code", "RepoNotFound"}}};
  }
  if (request.store) return resolve(repository, rest, request);
  if (const auto gate = gates_.find(repository); gate != gates_.end() && api == 1) {
    if (!request.has("authorization")) {
      return {.status = 401, .headers = {{"X-Error-Code", "GatedRepo"}}};
    }
    if (request.headers.at("authorization") != "Bearer " + gate->second.token) {
      return {.status = 401};
    }
    if (!gate->second.accepted) {
      return {.status = 403, .headers = {{"X-Error-Code", "GatedRepo"}}};
    }
  }
  if (api == 12 && rest.starts_with("revision/")) {
    return {.body = Json{{"id", repository}, {"sha", commit_of(repository)}}.dump()};
  }
  if (api == 12 && rest.starts_with("tree/")) return list(repository, request);
  if (api == 1 && rest.starts_with("resolve/")) {
    return resolve(repository, rest.substr(rest.find('/', 8) + 1), request);
  }
  return {.status = 404};
}

bool FakeHub::send_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(fd, data, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
    bytes_sent_ += n;
  }
  return true;
}

bool FakeHub::answer(int fd, const FakeRequest& request) {
  FakeFault fault;
  {
    const std::lock_guard lock(faults_mutex_);
    if (faults_) fault = faults_(request);
  }
  if (fault.hang) {
    char byte = 0;
    while (!stopping_ && ::recv(fd, &byte, 1, 0) > 0) {
    }
    return false;
  }
  Answer answer;
  {
    const std::lock_guard lock(mutex_);
    answer = route(request);
  }
  answer.head = request.method == "HEAD";
  if (fault.status != 0) answer = {.status = fault.status, .head = answer.head};
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(answer.headers, [&](const auto& h) { return h.first == name; });
    answer.headers.emplace_back(name, value);
  };
  if (!fault.location.empty()) {
    answer.status = 302;
    set("Location", fault.location);
    answer.file = nullptr;
  }
  if (!fault.error_code.empty()) set("X-Error-Code", fault.error_code);
  if (!fault.error_message.empty()) set("X-Error-Message", fault.error_message);
  if (!fault.retry_after.empty()) set("Retry-After", fault.retry_after);
  if (fault.header_bytes > 0) set("X-Large", std::string(fault.header_bytes, 'x'));
  std::string etag = answer.file != nullptr ? "\"" + answer.file->etag + "\"" : "";
  if (!fault.etag.empty() && answer.file != nullptr) set("ETag", etag = fault.etag);
  if (!fault.body.empty() && answer.status == 200) {
    answer.file = nullptr;
    answer.body = fault.body;
  }
  const bool if_range =
      !request.has("if-range") || fault.ignore_if_range || request.headers.at("if-range") == etag;
  if (answer.file != nullptr && request.has("range") && !fault.ignore_range && if_range) {
    const int64_t size = answer.file->size;
    const int64_t start = std::stoll(request.headers.at("range").substr(6));
    if (start >= size) {
      answer = {.status = 416, .headers = {{"Content-Range", "bytes */" + std::to_string(size)}}};
    } else {
      answer.status = 206;
      answer.start = start;
      const int64_t told = fault.wrong_range ? start / 2 : start;
      set("Content-Range", "bytes " + std::to_string(told) + "-" + std::to_string(size - 1) + "/" +
                               std::to_string(size));
    }
  }
  int64_t length = answer.body_bytes();
  if (fault.claim_size >= 0) {
    length = fault.claim_size - answer.start;
    if (answer.status == 302) set("X-Linked-Size", std::to_string(fault.claim_size));
  }
  if (fault.chunked) {
    set("Transfer-Encoding", "chunked");
  } else if (!fault.no_length) {
    set("Content-Length", std::to_string(answer.status == 302 ? 0 : length));
  } else {
    set("Connection", "close");
  }
  std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " X\r\n";
  for (const auto& [name, value] : answer.headers) head += name + ": " + value + "\r\n";
  head += "\r\n";
  if (!send_all(fd, head.data(), head.size())) return false;
  if (answer.head || answer.status == 302) return true;
  return send_body(fd, answer, fault) && !fault.no_length && fault.claim_size < 0;
}

bool FakeHub::send_body(int fd, const Answer& answer, const FakeFault& fault) {
  int64_t size = answer.body_bytes();
  if (fault.claim_size >= 0) size = std::min(size, fault.claim_size - answer.start);
  const bool cut = fault.cut_at >= 0 && fault.cut_at < size;
  if (cut) size = fault.cut_at;
  int disk = -1;
  if (answer.file != nullptr && !answer.file->disk.empty()) {
    disk = ::open(answer.file->disk.c_str(), O_RDONLY | O_CLOEXEC);
  }
  const std::string& content = answer.file != nullptr ? answer.file->content : answer.body;
  bool good = true;
  for (int64_t sent = 0; good && sent < size && !stopping_;) {
    int64_t piece = std::min<int64_t>(size - sent, disk >= 0 ? int64_t{4} << 20 : 65536);
    if (fault.bytes_per_s > 0) {
      piece = std::min<int64_t>(piece, std::max<int64_t>(1, fault.bytes_per_s / 20));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    const int64_t at = answer.start + sent;
    if (disk >= 0) {
      off_t offset = at;
      const ssize_t n = ::sendfile(fd, disk, &offset, static_cast<size_t>(piece));
      good = n > 0;
      piece = std::max<ssize_t>(n, 0);
      bytes_sent_ += piece;
    } else {
      std::string bytes = content.substr(static_cast<size_t>(at), static_cast<size_t>(piece));
      if (fault.corrupt_at >= at && fault.corrupt_at < at + piece) {
        bytes[static_cast<size_t>(fault.corrupt_at - at)] ^= 1;
      }
      if (fault.chunked) {
        char length[32];
        std::snprintf(length, sizeof length, "%zx\r\n", bytes.size());
        bytes = length + bytes + "\r\n";
      }
      good = send_all(fd, bytes.data(), bytes.size());
    }
    sent += piece;
  }
  if (disk >= 0) ::close(disk);
  if (fault.hang_in_body) {
    char byte = 0;
    while (!stopping_ && ::recv(fd, &byte, 1, 0) > 0) {
    }
    return false;
  }
  if (cut || !good) return false;
  if (fault.chunked) good = send_all(fd, "0\r\n\r\n", 5);
  return good;
}

}  // namespace mere
