// A small hub for tests: real sockets on this machine, two hosts (the hub, and the store that large
// files are redirected to), and every fault a download can meet.
//
//   FakeHub hub;
//   hub.add("owner/name", "config.json", "{}");
//   hub.add("owner/name", "model.safetensors", bytes, true);
//   hub.on_request([](const FakeRequest& r) { return FakeFault{.cut_at = 100}; });
//   ... HF_ENDPOINT = hub.endpoint() ...
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/files.h"

namespace mere {

struct FakeRequest {
  bool store = false;  // at the second host
  std::string method;
  std::string path;                            // without the query
  std::string query;                           // what follows '?'
  std::map<std::string, std::string> headers;  // names in lower case
  int number = 0;                              // of requests so far

  bool is_file() const { return store || path.find("/resolve/") != std::string::npos; }
  bool has(const std::string& name) const { return headers.contains(name); }
};

// What goes wrong with one answer. Without a fault everything is as it should be.
struct FakeFault {
  int status = 0;               // this instead of the answer
  std::string error_code{};     // X-Error-Code
  std::string error_message{};  // X-Error-Message
  std::string retry_after{};    // Retry-After
  std::string location{};       // redirects there
  int64_t cut_at = -1;          // closes the connection after this many bytes of the body
  int64_t corrupt_at = -1;      // the byte at this place of the file is another one
  int64_t claim_size = -1;      // X-Linked-Size and Content-Length say so
  int64_t bytes_per_s = 0;      // a trickle
  bool hang = false;            // takes the request and never answers
  bool hang_in_body = false;    // stops at cut_at and keeps the connection
  bool ignore_range = false;    // 200 and everything
  bool wrong_range = false;     // 206 of another place
  bool no_length = false;       // no Content-Length; ends by closing
  bool chunked = false;
  std::string etag{};  // this ETag; If-Range is compared with it
  bool ignore_if_range = false;
  size_t header_bytes = 0;  // a header this large
  std::string body{};       // this content, with its own length
};

class FakeHub {
 public:
  FakeHub();
  ~FakeHub();
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;

  std::string endpoint() const;        // "http://127.0.0.1:PORT"
  std::string store_endpoint() const;  // the second host

  // A file of a repository, small ones under their git hash, `large` ones redirected.
  void add(const std::string& repository, const std::string& path, const std::string& content,
           bool large = false);
  // A large file that lies on the disk; its SHA-256 is taken.
  void add_from_disk(const std::string& repository, const std::string& path, const fs::path& file);
  // Instead of the listing: entries as JSON text.
  void set_listing(const std::string& repository, const std::string& json);
  void set_page_size(size_t entries);
  void set_hashes_listed(bool listed);
  // Requests to a gated repository need this token.
  void set_gate(const std::string& repository, const std::string& token, bool accepted);

  void on_request(std::function<FakeFault(const FakeRequest&)> faults);

  std::vector<FakeRequest> requests() const;
  int64_t bytes_sent() const { return bytes_sent_; }

  static std::string commit_of(const std::string& repository);
  static std::string git_blob_hash(const std::string& content);

 private:
  struct File {
    std::string path, content, etag;
    fs::path disk;
    int64_t size = 0;
    bool large = false;
  };
  struct Gate {
    std::string token;
    bool accepted = false;
  };
  struct Answer;

  void accept_loop(int listener, bool store);
  void serve(int fd, bool store);
  bool answer(int fd, const FakeRequest& request);
  Answer route(const FakeRequest& request);
  Answer list(const std::string& repository, const FakeRequest& request);
  Answer resolve(const std::string& repository, const std::string& path,
                 const FakeRequest& request);
  const File* find(const std::string& repository, const std::string& path) const;
  bool send_body(int fd, const Answer& answer, const FakeFault& fault);
  bool send_all(int fd, const char* data, size_t size);

  int hub_port_ = 0, store_port_ = 0;
  int hub_listener_ = -1, store_listener_ = -1;
  mutable std::mutex mutex_;
  std::map<std::string, std::map<std::string, File>> repositories_;
  std::map<std::string, std::string> listings_;
  std::map<std::string, Gate> gates_;
  size_t page_size_ = 1000;
  bool hashes_listed_ = true;
  std::mutex faults_mutex_;  // a fault may count: one at a time
  std::function<FakeFault(const FakeRequest&)> faults_;
  std::vector<FakeRequest> requests_;
  std::set<int> connections_;
  std::atomic<int64_t> bytes_sent_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace mere
