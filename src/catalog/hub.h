// The Hugging Face Hub protocol, as far as a download needs it; a mirror speaks the same.
//
//   Hub hub({.endpoint = "https://huggingface.co"}, options, progress);
//   const std::string commit = hub.resolve_commit("owner/name", "main");
//   for (const HubFile& file : hub.list_files("owner/name", commit)) ...
//
//   GET /api/models/{repo}/revision/{revision}             "sha": the commit of a branch
//   GET /api/models/{repo}/tree/{commit}?recursive=true    files, in pages (Link: ...; rel="next")
//   GET /{repo}/resolve/{commit}/{path}                    the bytes, or a redirect to a store of
//                                                          large files; X-Linked-ETag and -Size
//
// Small files are named by their git blob SHA-1, large ones (LFS, Xet) by their SHA-256; either
// name is also the proof of the content.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/http.h"
#include "core/config.h"
#include "core/progress.h"

namespace mere {

struct HubAccess {
  std::string endpoint{kDefaultHubEndpoint};  // without '/' at its end
  std::string token{};                        // empty: none. Never in a message
  std::string token_source{};                 // "HF_TOKEN": named in messages
};

// What the environment and the user's configuration say (core/config.h).
HubAccess hub_access(Progress& progress);

// Waits between tries of what may work the next time.
struct RetryPolicy {
  int tries = 6;            // in a row without a byte of progress
  double first_wait_s = 1;  // doubled each time, and cut by up to half at random
  double longest_wait_s = 30;
  double longest_asked_s = 120;                // a Retry-After above this ends the tries
  std::function<void(double seconds)> wait{};  // for tests; empty: sleeps, looking at cancellation
};

// Counts the tries of one piece of work.
class Retry {
 public:
  Retry(const RetryPolicy& policy, std::function<bool()> stop)
      : policy_(policy), stop_(std::move(stop)) {}

  // Waits before the next try, at least `asked_s` long; false when there is none left. Cancelled
  // when stopped.
  bool again(std::optional<double> asked_s = std::nullopt);
  void made_progress() { failed_ = 0; }

 private:
  const RetryPolicy& policy_;
  std::function<bool()> stop_;
  int failed_ = 0;
};

struct HubFile {
  std::string path;
  int64_t size = 0;  // bytes
  std::string etag;  // 64 hex digits: SHA-256; 40: git blob SHA-1

  bool is_sha256() const { return etag.size() == 64; }
};

struct HubOptions {
  HttpTimeouts timeouts{};
  RetryPolicy retry{};
};

// Asks one hub. Every request is tried again as the policy says; other answers than success become
// errors that name the page of the repository and what to do. One thread at a time.
class Hub {
 public:
  Hub(HubAccess access, HubOptions options, std::function<bool()> stop);

  // The commit (40 hex digits) of a branch or tag; a commit stands for itself, without a request.
  std::string resolve_commit(const std::string& repository, const std::string& revision);

  // All files of a commit, sorted by path. Paths are as the hub says: see path_problem().
  std::vector<HubFile> list_files(const std::string& repository, const std::string& commit);

  // Fetches one file into `sink`, once: no second try. `headers`: Range and If-Range.
  HttpResponse get_file(const std::string& repository, const std::string& commit,
                        const HubFile& file, std::vector<std::string> headers, HttpSink& sink);

  // Throws what an answer other than 200, 206 or 416 means; HubBusy for what may work later.
  void check_status(const HttpResponse& response, const std::string& repository,
                    const std::string& what) const;

  const HubAccess& access() const { return access_; }

 private:
  HttpResponse get(const std::string& repository, HttpRequest request, const std::string& what);
  std::string file_url(const std::string& repository, const std::string& commit,
                       const std::string& path) const;
  HubFile file_metadata(const std::string& repository, const std::string& commit,
                        const std::string& path);

  HubAccess access_;
  HubOptions options_;
  std::function<bool()> stop_;
  HttpClient http_;
};

// 429 or 5xx: the hub asks for patience.
struct HubBusy : IoError {
  HubBusy(ErrorInfo info, std::optional<double> asked_s)
      : IoError(std::move(info)), asked_s(asked_s) {}
  std::optional<double> asked_s;  // Retry-After
};

}  // namespace mere
