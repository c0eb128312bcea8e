#include "catalog/http.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>

#include "catalog/curl_api.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr int kMaxRedirects = 5;
constexpr size_t kMaxHeaderBytes = size_t{64} << 10;
constexpr size_t kMaxHeaders = 200;
constexpr size_t kMaxUrlBytes = 8192;
constexpr int kPoll_ms = 50;
constexpr long kReceiveBytes = 256L << 10;

using Clock = std::chrono::steady_clock;

struct UrlDeleter {
  void operator()(CURLU* url) const { curl().url_cleanup(url); }
};
using UrlHandle = std::unique_ptr<CURLU, UrlDeleter>;

struct Url {
  std::string scheme, host, port, path;
  bool has_user = false;
  bool has_query = false;
  std::string whole;

  std::string origin() const { return scheme + "://" + host + ":" + port; }
  std::string shown() const { return printable(host + path, 300); }
};

std::string url_part(CURLU* url, CURLUPart part, unsigned int flags = 0) {
  char* text = nullptr;
  if (curl().url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return {};
  std::string out = text;
  curl().free(text);
  return out;
}

// `location` seen from `base`; nullopt when it is no address of http or https.
std::optional<Url> parse_url(const std::string& location, const std::string& base = {}) {
  const UrlHandle handle(curl().url());
  if (!handle || location.size() > kMaxUrlBytes) return std::nullopt;
  const auto set = [&](const std::string& text) {
    return curl().url_set(handle.get(), CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  };
  if (location.find('\0') != std::string::npos) return std::nullopt;
  if (!base.empty() && !set(base)) return std::nullopt;
  if (!set(location)) return std::nullopt;
  // The part behind '#' is for browsers.
  curl().url_set(handle.get(), CURLUPART_FRAGMENT, nullptr, 0);
  Url url;
  url.scheme = url_part(handle.get(), CURLUPART_SCHEME);
  url.host = url_part(handle.get(), CURLUPART_HOST);
  url.port = url_part(handle.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  url.path = url_part(handle.get(), CURLUPART_PATH);
  url.has_user = !url_part(handle.get(), CURLUPART_USER).empty() ||
                 !url_part(handle.get(), CURLUPART_PASSWORD).empty();
  url.has_query = !url_part(handle.get(), CURLUPART_QUERY).empty();
  url.whole = url_part(handle.get(), CURLUPART_URL);
  std::ranges::transform(url.host, url.host.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  if ((url.scheme != "http" && url.scheme != "https") || url.host.empty()) return std::nullopt;
  return url;
}

bool is_this_machine(const std::string& host) {
  if (host == "localhost" || host == "[::1]") return true;
  in_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

[[noreturn]] void fail(const char* code, const std::string& where, const std::string& what,
                       bool transient, const std::string& hint = "") {
  throw HttpError({code, where, where + ": " + what, hint}, transient);
}

// Why requests may not go to `url`; empty when they may.
std::string url_problem(const Url& url) {
  if (url.has_user) return "an address that holds a user name is not used";
  if (url.scheme == "http" && !is_this_machine(url.host)) {
    return "plaintext HTTP is used with this machine only";
  }
  return {};
}

// Where a redirect of `from` leads.
Url redirect_target(const Url& from, const HttpResponse& response) {
  const std::string* location = response.header("location");
  if (location == nullptr) {
    fail("redirect_refused", from.shown(), "a redirect that names no address", false);
  }
  const std::optional<Url> to = parse_url(*location, from.whole);
  if (!to) fail("redirect_refused", from.shown(), "a redirect to what is no HTTPS address", false);
  const std::string problem = url_problem(*to);
  if (!problem.empty()) {
    fail("redirect_refused", from.shown(), "redirects to " + to->shown() + ": " + problem, false);
  }
  if (is_this_machine(to->host) && !is_this_machine(from.host)) {
    fail("redirect_refused", from.shown(), "redirects to this machine", false);
  }
  return *to;
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// A connection that the other side closed raises SIGPIPE in the thread that writes to it; it must
// not end the program.
class BrokenPipeBlocked {
 public:
  BrokenPipeBlocked() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~BrokenPipeBlocked() {
    if (::sigismember(&before_, SIGPIPE) == 1) return;
    const timespec now{};
    while (::sigtimedwait(&pipe_, nullptr, &now) > 0) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipeBlocked(const BrokenPipeBlocked&) = delete;
  BrokenPipeBlocked& operator=(const BrokenPipeBlocked&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
};

struct ErrorMeaning {
  CURLcode code;
  const char* name;
  const char* text;
  bool transient;
};
constexpr ErrorMeaning kMeanings[] = {
    {CURLE_COULDNT_RESOLVE_PROXY, "host_unknown", "the proxy's name is not known", true},
    {CURLE_COULDNT_RESOLVE_HOST, "host_unknown", "the name of the host is not known", true},
    {CURLE_COULDNT_CONNECT, "connection_failed", "cannot connect", true},
    {CURLE_OPERATION_TIMEDOUT, "connection_failed", "no connection in time", true},
    {CURLE_PARTIAL_FILE, "connection_cut", "the connection ended early", true},
    {CURLE_RECV_ERROR, "connection_cut", "the connection broke", true},
    {CURLE_SEND_ERROR, "connection_cut", "the connection broke", true},
    {CURLE_GOT_NOTHING, "connection_cut", "the connection ended without an answer", true},
    {CURLE_HTTP2, "connection_cut", "the connection broke", true},
    {CURLE_HTTP2_STREAM, "connection_cut", "the connection broke", true},
    {CURLE_SSL_CONNECT_ERROR, "connection_failed", "the encrypted connection failed", true},
    {CURLE_PEER_FAILED_VERIFICATION, "certificate_invalid", "its certificate is not trusted",
     false},
    {CURLE_WEIRD_SERVER_REPLY, "answer_invalid", "an answer that is no HTTP", true},
    {CURLE_UNSUPPORTED_PROTOCOL, "answer_invalid", "an answer that is no HTTP", true},
};

[[noreturn]] void fail_curl(CURLcode code, const std::string& where) {
  for (const ErrorMeaning& meaning : kMeanings) {
    if (meaning.code == code) fail(meaning.name, where, meaning.text, meaning.transient);
  }
  fail("network_error", where, curl().easy_strerror(code), true);
}

}  // namespace

const std::string* HttpResponse::header(std::string_view name) const {
  const auto it = std::ranges::find_if(headers, [&](const auto& h) { return h.first == name; });
  return it == headers.end() ? nullptr : &it->second;
}

const std::string* HttpResponse::last_header(std::string_view name) const {
  const std::string* found = header(name);
  const auto end = headers.begin() + static_cast<std::ptrdiff_t>(last_headers);
  const bool own =
      std::any_of(headers.begin(), end, [&](const auto& h) { return h.first == name; });
  return own ? found : nullptr;
}

struct HttpClient::Handles {
  CURLM* multi = nullptr;
  CURL* easy = nullptr;

  Handles() {
    multi = curl().multi_init();
    easy = curl().easy_init();
    if (multi == nullptr || easy == nullptr) throw std::bad_alloc();
  }
  ~Handles() {
    curl().easy_cleanup(easy);
    curl().multi_cleanup(multi);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
};

// What the callbacks of one exchange share.
struct HttpClient::Exchange {
  const HttpRequest& request;
  const HttpResponse::Headers& earlier;  // of the redirects that led here
  std::string where;
  HttpResponse response{};
  size_t header_bytes = 0;
  bool to_sink = false;
  Clock::time_point last_byte = Clock::now();
  std::exception_ptr problem{};

  // Runs `take` for `size` bytes; 0, which ends the transfer, when it throws.
  template <typename Take>
  size_t guarded(size_t size, const Take& take) {
    try {
      take();
    } catch (...) {
      problem = std::current_exception();
      return size == 0 ? 1 : 0;
    }
    last_byte = Clock::now();
    return size;
  }

  void take_header(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kMaxHeaderBytes || response.headers.size() > kMaxHeaders + earlier.size()) {
      fail("answer_too_large", where, "the headers of the answer are too large", false);
    }
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {  // the first line; again after an interim answer
      response.headers.clear();
      const size_t space = line.find(' ');
      response.status = 0;
      for (size_t i = space + 1; space != line.npos && i < line.size() && i < space + 4; ++i) {
        if (std::isdigit(static_cast<unsigned char>(line[i])) != 0) {
          response.status = response.status * 10 + (line[i] - '0');
        }
      }
      return;
    }
    if (line.empty()) {
      response.last_headers = response.headers.size();
      response.headers.insert(response.headers.end(), earlier.begin(), earlier.end());
      to_sink = request.sink != nullptr && !request.head &&
                (response.status == 200 || response.status == 206);
      return;
    }
    const size_t colon = line.find(':');
    if (colon == line.npos) return;
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) {
      value.remove_prefix(1);
    }
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    response.headers.emplace_back(std::move(name), std::string(value));
  }

  void take_body(std::string_view bytes) {
    if (to_sink) {
      if (!head_given) request.sink->on_head(response);
      head_given = true;
      request.sink->on_bytes(bytes);
      return;
    }
    if (is_redirect(response.status)) return;
    if (bytes.size() > request.max_body_bytes - response.body.size()) {
      fail("answer_too_large", where,
           "an answer of more than " + human_bytes(static_cast<int64_t>(request.max_body_bytes)),
           false);
    }
    response.body += bytes;
  }

  bool head_given = false;
};

HttpClient::HttpClient(HttpTimeouts timeouts, std::function<bool()> stop)
    : handles_(std::make_unique<Handles>()), timeouts_(timeouts), stop_(std::move(stop)) {}

HttpClient::~HttpClient() = default;

HttpResponse HttpClient::send_once(const HttpRequest& request, const std::string& address,
                                   bool with_token, const HttpResponse::Headers& earlier) {
  const Url url = *parse_url(address);
  Exchange exchange{request, earlier, url.shown()};
  CURL* easy = handles_->easy;
  curl().easy_reset(easy);
  curl().easy_setopt(easy, CURLOPT_URL, url.whole.c_str());
  curl().easy_setopt(easy, CURLOPT_PROTOCOLS_STR, url.scheme.c_str());
  curl().easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl().easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl().easy_setopt(easy, CURLOPT_NOPROGRESS, 1L);
  curl().easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBytes);
  curl().easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(timeouts_.connect_seconds * 1000));
  const std::string agent = "mere.run/" + version();
  curl().easy_setopt(easy, CURLOPT_USERAGENT, agent.c_str());
  if (request.head) curl().easy_setopt(easy, CURLOPT_NOBODY, 1L);
  if (is_this_machine(url.host)) curl().easy_setopt(easy, CURLOPT_NOPROXY, "*");

  const auto free_list = [](curl_slist* list) { curl().slist_free_all(list); };
  std::unique_ptr<curl_slist, decltype(free_list)> lines(nullptr, free_list);
  const auto add_line = [&](const std::string& line) {
    curl_slist* grown = curl().slist_append(lines.get(), line.c_str());
    if (grown == nullptr) throw std::bad_alloc();
    static_cast<void>(lines.release());
    lines.reset(grown);
  };
  add_line("Accept: */*");
  for (const std::string& line : request.headers) add_line(line);
  if (with_token && !request.token.empty()) add_line("Authorization: Bearer " + request.token);
  curl().easy_setopt(easy, CURLOPT_HTTPHEADER, lines.get());

  using Callback = size_t (*)(char*, size_t, size_t, void*);
  const Callback on_header = [](char* data, size_t, size_t size, void* user) {
    auto& e = *static_cast<Exchange*>(user);
    return e.guarded(size, [&] { e.take_header({data, size}); });
  };
  const Callback on_body = [](char* data, size_t, size_t size, void* user) {
    auto& e = *static_cast<Exchange*>(user);
    return e.guarded(size, [&] { e.take_body({data, size}); });
  };
  curl().easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl().easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  curl().easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
  curl().easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);

  const BrokenPipeBlocked blocked;
  struct Attached {
    Handles& handles;
    explicit Attached(Handles& h) : handles(h) { curl().multi_add_handle(h.multi, h.easy); }
    ~Attached() { curl().multi_remove_handle(handles.multi, handles.easy); }
  } attached(*handles_);
  std::optional<CURLcode> result;
  while (!result) {
    int running = 0;
    if (curl().multi_perform(handles_->multi, &running) != CURLM_OK) {
      fail("network_error", exchange.where, "the transfer cannot go on", true);
    }
    int left = 0;
    while (const CURLMsg* message = curl().multi_info_read(handles_->multi, &left)) {
      if (message->msg == CURLMSG_DONE) result = message->data.result;
    }
    if (result) break;
    if (stop_ && stop_()) throw Cancelled();
    const double idle_seconds =
        std::chrono::duration<double>(Clock::now() - exchange.last_byte).count();
    if (idle_seconds > timeouts_.stall_seconds) {
      fail("network_stalled", exchange.where,
           "no byte for " + std::to_string(static_cast<int>(timeouts_.stall_seconds)) + " s", true);
    }
    curl().multi_poll(handles_->multi, nullptr, 0, kPoll_ms, nullptr);
  }
  if (exchange.problem) std::rethrow_exception(exchange.problem);
  if (*result != CURLE_OK) fail_curl(*result, exchange.where);
  if (exchange.to_sink && !exchange.head_given) request.sink->on_head(exchange.response);
  return std::move(exchange.response);
}

HttpResponse HttpClient::send(const HttpRequest& request) {
  std::optional<Url> url = parse_url(request.url);
  if (!url) fail("url_refused", "", "not an HTTPS address", false);
  const std::string problem = url_problem(*url);
  if (!problem.empty()) fail("url_refused", url->shown(), problem, false);
  const std::string first_origin = url->origin();
  HttpResponse::Headers earlier;
  for (int redirects = 0;; ++redirects) {
    HttpResponse response = send_once(request, url->whole, url->origin() == first_origin, earlier);
    if (!is_redirect(response.status)) return response;
    if (redirects == kMaxRedirects) {
      fail("redirect_refused", url->shown(),
           "more than " + std::to_string(kMaxRedirects) + " redirects", false);
    }
    url = redirect_target(*url, response);
    earlier = std::move(response.headers);
  }
}

std::string shown_url(const std::string& url) {
  const std::optional<Url> parsed = parse_url(url);
  return parsed ? parsed->shown() : "an address that cannot be read";
}

std::string url_escaped(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 128 && (std::isalnum(byte) != 0 || std::strchr("-._~", c) != nullptr);
    if (plain && c != '\0') {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

}  // namespace mere
