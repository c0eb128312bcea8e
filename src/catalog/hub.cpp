#include "catalog/hub.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>

#include "catalog/curl_api.h"
#include "catalog/names.h"
#include "core/config.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr size_t kMaxRevisionBytes = size_t{8} << 20;
constexpr size_t kMaxPageBytes = size_t{16} << 20;
constexpr size_t kMaxPages = 200;
constexpr size_t kMaxFiles = 100'000;
constexpr int64_t kMaxFileBytes = int64_t{1} << 44;

// "W/\"abc\"" -> "abc".
std::string plain_etag(const std::string& text) {
  std::string_view etag = text;
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return lower(std::string(etag));
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Seconds that Retry-After asks for: a number or a date.
std::optional<double> retry_after_s(const HttpResponse& response) {
  const std::string* text = response.last_header("retry-after");
  if (text == nullptr) return std::nullopt;
  if (const auto seconds = whole_number(*text)) return static_cast<double>(*seconds);
  const time_t date = curl().getdate(text->c_str(), nullptr);
  if (date < 0) return std::nullopt;
  return std::max(0.0, std::difftime(date, std::time(nullptr)));
}

// The address after "<" of the entry with rel="next"; nullopt when there is none.
std::optional<std::string> next_page(const HttpResponse& response) {
  const std::string* link = response.last_header("link");
  if (link == nullptr) return std::nullopt;
  for (size_t at = 0; (at = link->find('<', at)) != std::string::npos;) {
    const size_t close = link->find('>', at);
    if (close == std::string::npos) return std::nullopt;
    const size_t end = std::min(link->find('<', close), link->size());
    const std::string parameters = lower(link->substr(close, end - close));
    if (parameters.find("rel=\"next\"") != std::string::npos) {
      return link->substr(at + 1, close - at - 1);
    }
    at = end;
  }
  return std::nullopt;
}

// One entry of a listing; nullopt for a folder, or a file whose name is not known to be a hash.
std::optional<HubFile> read_entry(const Json& entry, const std::string& source, bool& complete) {
  if (json_string_or(entry, "type", "file", source) != "file") return std::nullopt;
  HubFile file;
  file.path = json_string_or(entry, "path", "", source);
  file.size = json_int(entry, "size", 0, kMaxFileBytes, source);
  file.etag = lower(json_string_or(entry, "oid", "", source));
  const auto lfs = entry.find("lfs");
  if (lfs != entry.end() && lfs->is_object()) {
    file.etag = lower(json_string_or(*lfs, "oid", "", source));
    if (file.etag.starts_with("sha256:")) file.etag = file.etag.substr(7);
    file.size = json_int_or(*lfs, "size", 0, kMaxFileBytes, file.size, source);
  }
  if (!is_blob_name(file.etag)) complete = false;
  return file;
}

// A message of the server, in one short line; none that repeats the token.
std::string server_says(const HttpResponse& response, const std::string& token) {
  const std::string* text = response.header("x-error-message");
  if (text == nullptr || text->empty()) return "";
  if (!token.empty() && text->find(token) != std::string::npos) return "";
  return "; the hub says: " + printable(*text, 200);
}

}  // namespace

HubAccess hub_access(Progress& progress) {
  HubAccess access{.endpoint = hub_endpoint(progress).url};
  if (std::optional<HubToken> token = hub_token(progress)) {
    access.token = std::move(token->value);
    access.token_source = std::move(token->source);
  }
  return access;
}

bool Retry::again(std::optional<double> asked_s) {
  if (++failed_ >= policy_.tries) return false;
  if (asked_s && *asked_s > policy_.longest_asked_s) return false;
  double wait_s = policy_.first_wait_s;
  for (int i = 1; i < failed_ && wait_s < policy_.longest_wait_s; ++i) wait_s *= 2;
  wait_s = std::min(wait_s, policy_.longest_wait_s);
  // Clients that were cut off together must not come back together.
  thread_local std::minstd_rand random(std::random_device{}());
  wait_s *= std::uniform_real_distribution<double>(0.5, 1.0)(random);
  wait_s = std::max(wait_s, asked_s.value_or(0));
  if (policy_.wait) {
    policy_.wait(wait_s);
  } else {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
    while (std::chrono::steady_clock::now() < end) {
      if (stop_ && stop_()) throw Cancelled();
      std::this_thread::sleep_for(
          std::chrono::milliseconds(std::min(50, static_cast<int>(wait_s * 1000) + 1)));
    }
  }
  if (stop_ && stop_()) throw Cancelled();
  return true;
}

Hub::Hub(HubAccess access, HubOptions options, std::function<bool()> stop)
    : access_(std::move(access)),
      options_(std::move(options)),
      stop_(std::move(stop)),
      http_(options_.timeouts, stop_) {
  access_.endpoint = checked_endpoint(access_.endpoint, "the endpoint");
  if (!access_.token.empty()) access_.token = checked_token(access_.token, access_.token_source);
}

void Hub::check_status(const HttpResponse& response, const std::string& repository,
                       const std::string& what) const {
  const int status = response.status;
  if (status == 200 || status == 206 || status == 416) return;
  const std::string page = access_.endpoint + "/" + repository;
  const std::string* error_code = response.header("x-error-code");
  const std::string code = error_code == nullptr ? "" : *error_code;
  const bool has_token = !access_.token.empty();
  const std::string set_token = "mere.run config set hf-token TOKEN";
  const auto fail = [&](const char* name, const std::string& text, const std::string& hint) {
    throw IoError{{name, page, page + ": " + text + server_says(response, access_.token), hint}};
  };
  if (status == 429 || status >= 500) {
    throw HubBusy(
        {status == 429 ? "hub_rate_limit" : "hub_unavailable", page,
         page + ": " + what + ": the hub answers " + std::to_string(status) +
             (status == 429 ? " (too many requests)" : "") + server_says(response, access_.token),
         "try again later: what is here already is kept"},
        retry_after_s(response));
  }
  if (status == 401 && !has_token) {
    fail("hub_token_missing", "needs a token, and none is set, or it does not exist",
         "open " + page + " and accept its licence if it has one, then: " + set_token);
  }
  if (code == "GatedRepo" && has_token) {
    fail("hub_license_not_accepted",
         "the account of the token from " + access_.token_source +
             " has not been given access to it",
         "open " + page +
             " with that account and accept its licence, then pull again; for another "
             "account: " +
             set_token);
  }
  if (status == 401) {
    fail("hub_token_refused", "the hub does not take the token from " + access_.token_source,
         "make a new one at " + access_.endpoint + "/settings/tokens, then: " + set_token);
  }
  if (status == 403) {
    fail("hub_forbidden",
         has_token ? "the token from " + access_.token_source + " does not give access to it"
                   : "the hub gives no access to it without a token",
         "open " + page + " to see what access needs, then: " + set_token);
  }
  if (status == 404) {
    fail("hub_not_found", what + " is not there (404)", "see " + page);
  }
  fail("hub_answer", what + ": the hub answers " + std::to_string(status), "");
}

HttpResponse Hub::get(const std::string& repository, HttpRequest request, const std::string& what) {
  request.token = access_.token;
  request.max_body_bytes = kMaxPageBytes;
  Retry retry(options_.retry, stop_);
  for (;;) {
    try {
      HttpResponse response = http_.send(request);
      check_status(response, repository, what);
      return response;
    } catch (const HttpError& e) {
      if (!e.transient || !retry.again()) throw;
    } catch (const HubBusy& e) {
      if (!retry.again(e.asked_s)) throw;
    }
  }
}

std::string Hub::resolve_commit(const std::string& repository, const std::string& revision) {
  if (!is_repository(repository) || !is_revision(revision)) {
    throw UsageError{{"repository_invalid", repository,
                      printable(repository) + " at " + printable(revision) +
                          " is no repository \"owner/name\" and revision",
                      ""}};
  }
  if (is_commit(revision)) return revision;
  const HttpResponse response = get(repository,
                                    {.url = access_.endpoint + "/api/models/" + repository +
                                            "/revision/" + url_escaped(revision)},
                                    "revision " + revision);
  const std::string source = repository + " at " + revision;
  if (response.body.size() > kMaxRevisionBytes) {
    throw IoError{{"hub_answer", source, source + ": the hub's answer is too large", ""}};
  }
  const std::string sha =
      lower(json_string_or(parse_json(response.body, source), "sha", "", source));
  if (!is_commit(sha)) {
    throw IoError{{"hub_answer", source, source + ": the hub names no commit", ""}};
  }
  return sha;
}

std::vector<HubFile> Hub::list_files(const std::string& repository, const std::string& commit) {
  const std::string source = "files of " + repository;
  const std::string base =
      access_.endpoint + "/api/models/" + repository + "/tree/" + url_escaped(commit);
  std::vector<HubFile> files;
  bool complete = true;
  std::string url = base + "?recursive=true&expand=false";
  for (size_t pages = 0;; ++pages) {
    if (pages == kMaxPages) {
      throw IoError{{"hub_answer", source, source + ": the list does not end", ""}};
    }
    const HttpResponse response = get(repository, {.url = url}, "commit " + commit);
    const Json page = parse_json(response.body, source);
    if (!page.is_array()) {
      throw IoError{{"hub_answer", source, source + ": the hub's answer is no list", ""}};
    }
    for (const Json& entry : page) {
      if (auto file = read_entry(entry, source, complete)) files.push_back(std::move(*file));
      if (files.size() > kMaxFiles) {
        throw IoError{{"hub_answer", source, source + ": too many files", ""}};
      }
    }
    const auto next = next_page(response);
    if (!next) break;
    // A mirror may hand on the address that the hub itself gave it, and the token must not go
    // there: only what follows '?' counts.
    const size_t query = next->find('?');
    if (query == std::string::npos) break;
    url = base + next->substr(query);
  }
  if (!complete) {
    for (HubFile& file : files) {
      if (!is_blob_name(file.etag) && path_problem(file.path).empty()) {
        file = file_metadata(repository, commit, file.path);
      }
    }
  }
  std::ranges::sort(files, {}, &HubFile::path);
  return files;
}

std::string Hub::file_url(const std::string& repository, const std::string& commit,
                          const std::string& path) const {
  std::string url = access_.endpoint + "/" + repository + "/resolve/" + commit;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    url += "/" + url_escaped(std::string_view(path).substr(start, end - start));
    start = end + 1;
  }
  return url;
}

HubFile Hub::file_metadata(const std::string& repository, const std::string& commit,
                           const std::string& path) {
  const HttpResponse response =
      get(repository, {.url = file_url(repository, commit, path), .head = true}, printable(path));
  HubFile file{path, 0, ""};
  const std::string* etag = response.header("x-linked-etag");
  if (etag == nullptr) etag = response.header("etag");
  if (etag != nullptr) file.etag = plain_etag(*etag);
  const std::string* size = response.header("x-linked-size");
  if (size == nullptr) size = response.last_header("content-length");
  file.size = whole_number(size == nullptr ? "" : *size).value_or(-1);
  if (!is_blob_name(file.etag) || file.size < 0 || file.size > kMaxFileBytes) {
    throw IoError{{"hub_answer", path,
                   repository + "/" + printable(path) +
                       ": the hub gives no hash or no size for it, so it could not be checked",
                   ""}};
  }
  return file;
}

HttpResponse Hub::get_file(const std::string& repository, const std::string& commit,
                           const HubFile& file, std::vector<std::string> headers, HttpSink& sink) {
  return http_.send({.url = file_url(repository, commit, file.path),
                     .token = access_.token,
                     .headers = std::move(headers),
                     .sink = &sink});
}

}  // namespace mere
