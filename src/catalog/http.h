// HTTP for downloads: libcurl behind one class.
//
//   HttpClient http;
//   const HttpResponse page = http.send({.url = endpoint + "/api/models/owner/name"});
//
// HTTPS only; plaintext only to this machine (127.0.0.0/8, ::1, localhost), and never by a redirect
// from another one. Redirects are followed here, so that the token goes to the first origin alone.
// Proxies come from the usual environment variables; this machine is never reached through one.
// An error names host and path: what follows '?' of a signed address is a secret.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace mere {

// A failed exchange. An answer with an error status is no HttpError.
struct HttpError : IoError {
  HttpError(ErrorInfo info, bool transient) : IoError(std::move(info)), transient(transient) {}
  bool transient;  // trying again may help
};

struct HttpResponse {
  using Headers = std::vector<std::pair<std::string, std::string>>;
  int status = 0;
  std::string body;  // what no sink took
  // Names in lower case; of every answer on the way, the last one's first.
  Headers headers;

  // First header of that name (in lower case); nullptr when there is none. With redirects the last
  // answer's wins over an earlier one's.
  const std::string* header(std::string_view name) const;
  // The same of the last answer alone.
  const std::string* last_header(std::string_view name) const;
  size_t last_headers = 0;  // how many of `headers` are the last answer's
};

// Takes the body of a final answer 200 or 206 as it arrives. What it throws ends the exchange and
// comes out of send().
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  virtual void on_head(const HttpResponse& head) = 0;
  virtual void on_bytes(std::string_view bytes) = 0;
};

struct HttpRequest {
  std::string url;
  bool head = false;                   // HEAD instead of GET
  std::string token{};                 // "Authorization: Bearer ..." to the origin of `url`
  std::vector<std::string> headers{};  // "Range: bytes=5-"
  size_t max_body_bytes = size_t{1} << 20;
  HttpSink* sink = nullptr;
};

struct HttpTimeouts {
  double connect_seconds = 20;
  // Without a byte from the other side for this long an exchange is given up. Time that a sink
  // takes does not count.
  double stall_seconds = 30;
};

// One exchange at a time; connections are kept for the next one. A client per thread.
class HttpClient {
 public:
  // `stop` is asked every 50 ms; when it answers true, send() throws Cancelled.
  explicit HttpClient(HttpTimeouts timeouts = {}, std::function<bool()> stop = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // HttpError when there is no answer, it is out of bounds, or a redirect is refused.
  HttpResponse send(const HttpRequest& request);

 private:
  struct Exchange;
  struct Handles;
  HttpResponse send_once(const HttpRequest& request, const std::string& url, bool with_token,
                         const HttpResponse::Headers& earlier);

  std::unique_ptr<Handles> handles_;
  HttpTimeouts timeouts_;
  std::function<bool()> stop_;
};

// "host/path" for messages: no user, no query, no control characters.
std::string shown_url(const std::string& url);

// `text` with everything but letters, digits and "-._~" as %XX.
std::string url_escaped(std::string_view text);

}  // namespace mere
