#include "catalog/adapters.h"
#include "catalog/http.h"

namespace mere {
namespace {

// A status that is no content; 206 is none either, as no part was asked for.
[[noreturn]] void refuse_status(const std::string& url, int status) {
  const std::string where = shown_url(url);
  const std::string message = where + ": the server answers " + std::to_string(status);
  if (status == 429) {
    throw TransientError{
        {"server_rate_limit", where, message + " (too many requests)", "try again later"}};
  }
  if (status >= 500) {
    throw TransientError{{"server_unavailable", where, message, "try again later"}};
  }
  throw IoError{{"server_refused", where, message, ""}};
}

class ContentSink : public HttpSink {
 public:
  ContentSink(const std::string& url, const FetchSink& sink) : url_(url), sink_(sink) {}

  void on_head(const HttpResponse& head) override {
    if (head.status != 200) refuse_status(url_, head.status);
  }
  void on_bytes(std::string_view bytes) override { sink_(bytes); }

 private:
  const std::string& url_;
  const FetchSink& sink_;
};

}  // namespace

Fetch http_fetch(const Progress& progress) {
  return [&progress](const std::string& url, const FetchSink& sink) {
    HttpClient http({}, [&progress] { return progress.cancelled(); });
    ContentSink content(url, sink);
    try {
      const HttpResponse response = http.send({.url = url, .sink = &content});
      if (response.status != 200) refuse_status(url, response.status);
    } catch (const HttpError& e) {
      if (!e.transient) throw;
      throw TransientError(e.info());
    }
  };
}

}  // namespace mere
