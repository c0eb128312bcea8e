#include "catalog/http.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>

#include "fake_hub.h"

#include "catalog/hub.h"

namespace mere {
namespace {

constexpr const char* kToken = "hf_SECRET";

class Http : public ::testing::Test {
 protected:
  Http() { hub_.add("o/n", "file", "content"); }

  std::string file_url() const {
    return hub_.endpoint() + "/o/n/resolve/" + FakeHub::commit_of("o/n") + "/file?key=SECRET";
  }
  void always(const FakeFault& fault) {
    hub_.on_request([fault](const FakeRequest&) { return fault; });
  }
  ErrorInfo error(const std::string& url, HttpTimeouts timeouts = {}) {
    try {
      HttpClient(timeouts).send({.url = url, .token = kToken});
    } catch (const HttpError& e) {
      transient_ = e.transient;
      EXPECT_EQ(std::string(e.what()).find("SECRET"), std::string::npos) << e.what();
      EXPECT_EQ(e.info().field.find("SECRET"), std::string::npos) << e.info().field;
      return e.info();
    }
    ADD_FAILURE() << "nothing was thrown for " << url;
    return {};
  }

  FakeHub hub_;
  bool transient_ = false;
};

TEST_F(Http, GivesStatusHeadersAndBody) {
  HttpClient http;
  const HttpResponse response = http.send({.url = file_url(), .token = kToken});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "content");
  ASSERT_NE(response.header("etag"), nullptr);
  EXPECT_EQ(hub_.requests()[0].headers.at("authorization"), std::string("Bearer ") + kToken);
  EXPECT_TRUE(hub_.requests()[0].headers.at("user-agent").starts_with("mere.run/"));
  EXPECT_EQ(http.send({.url = hub_.endpoint() + "/o/n/nothing"}).status, 404);
}

TEST_F(Http, PlaintextOnlyToThisMachine) {
  for (const char* url : {"http://example.invalid/x", "http://127.0.0.1.example.invalid/x",
                          "http://128.0.0.1/x", "http://[::2]/x", "http://0.0.0.0/x",
                          "http://localhost.example.invalid/", "http://user:SECRET@127.0.0.1/x"}) {
    EXPECT_EQ(error(url).code, "url_refused") << url;
    EXPECT_FALSE(transient_);
  }
  for (const char* url : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/", "",
                          "nonsense", "scp://127.0.0.1/x"}) {
    EXPECT_EQ(error(url).code, "url_refused") << url;
  }
}

TEST_F(Http, RefusesRedirectsThatLeadAstray) {
  for (const char* location : {"http://example.invalid/x", "file:///etc/passwd", "ftp://127.0.0.1/",
                               "dict://127.0.0.1/", "http://user:SECRET@127.0.0.1/x"}) {
    always({.location = location});
    EXPECT_EQ(error(file_url()).code, "redirect_refused") << location;
  }
  always({.location = "/o/n/resolve/again?x=SECRET"});  // a loop
  EXPECT_EQ(error(file_url()).code, "redirect_refused");
  EXPECT_EQ(hub_.requests().size(), 5U + 6U);
}

TEST_F(Http, TheTokenStaysWithTheFirstHost) {
  hub_.add("o/n", "large", "bytes", true);
  const HttpResponse response = HttpClient().send(
      {.url = hub_.endpoint() + "/o/n/resolve/" + FakeHub::commit_of("o/n") + "/large",
       .token = kToken});
  EXPECT_EQ(response.body, "bytes");
  EXPECT_NE(response.header("x-linked-etag"), nullptr);
  EXPECT_EQ(response.last_header("x-linked-etag"), nullptr);
  const auto requests = hub_.requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_TRUE(requests[0].has("authorization"));
  EXPECT_TRUE(requests[1].store);
  EXPECT_FALSE(requests[1].has("authorization"));
}

TEST_F(Http, ARelativeRedirectKeepsTheToken) {
  hub_.on_request([this](const FakeRequest& request) {
    FakeFault fault;
    if (request.number == 0) fault.location = "/o/n/resolve/" + FakeHub::commit_of("o/n") + "/file";
    return fault;
  });
  EXPECT_EQ(HttpClient().send({.url = hub_.endpoint() + "/old/n/x", .token = kToken}).body,
            "content");
  EXPECT_TRUE(hub_.requests()[1].has("authorization"));
}

TEST_F(Http, GivesUpOnAHostThatNeverAnswers) {
  always({.hang = true});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error(file_url(), {.stall_seconds = 0.2}).code, "network_stalled");
  EXPECT_TRUE(transient_);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST_F(Http, TimeInASinkIsNoStall) {
  struct SlowSink : HttpSink {
    void on_head(const HttpResponse&) override {}
    void on_bytes(std::string_view bytes) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      got += bytes;
    }
    std::string got;
  } sink;
  always({.bytes_per_s = 60});
  HttpClient({.stall_seconds = 0.2}).send({.url = file_url(), .sink = &sink});
  EXPECT_EQ(sink.got, "content");
}

TEST_F(Http, StopsWithinAFewMoments) {
  always({.hang = true});
  std::atomic<bool> stop{false};
  HttpClient http({}, [&stop] { return stop.load(); });
  std::thread stopper([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(http.send({.url = file_url()}), Cancelled);
  stopper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(300));
}

TEST_F(Http, BoundsWhatItTakes) {
  always({.header_bytes = 80'000});
  EXPECT_EQ(error(file_url()).code, "answer_too_large");
  always({.body = std::string((1 << 20) + 1, 'x')});
  EXPECT_EQ(error(file_url()).code, "answer_too_large");
}

TEST_F(Http, NamesHostAndPathOnly) {
  always({.cut_at = 3});
  const ErrorInfo info = error(file_url());
  EXPECT_EQ(info.code, "connection_cut");
  EXPECT_TRUE(transient_);
  EXPECT_NE(info.message.find("127.0.0.1/o/n/resolve/"), std::string::npos);
  EXPECT_EQ(shown_url("https://user:pw@host.example/a/b?sig=SECRET#x"), "host.example/a/b");
  EXPECT_EQ(error("http://127.0.0.1:1/x?key=SECRET").code, "connection_failed");
}

}  // namespace
}  // namespace mere
