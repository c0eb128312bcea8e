// Pulling adapters: by a fetch that the test plays, and over real sockets of this machine.
#include "catalog/adapters.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>

#include "fake_hub.h"
#include "pull_setup.h"
#include "temporary_home.h"

namespace mere {
namespace {

class Adapters : public ::testing::Test {
 protected:
  Adapters() {
    home_.set("XDG_CACHE_HOME", (home_.path() / "cache").string());
    adapter_.id = "style-test";
    adapter_.version = "2";
    adapter_.url = "https://example.com/files/style.safetensors?download=true";
    adapter_.bytes = static_cast<int64_t>(content_.size());
    adapter_.sha256 = sha256_hex(content_);
    options_.retry_delay = std::chrono::milliseconds(0);
  }

  void TearDown() override { EXPECT_EQ(leftovers(), 0); }

  fs::path place() const { return adapters_dir() / "style-test/2/style.safetensors"; }
  void put(const std::string& bytes) const {
    fs::create_directories(place().parent_path());
    std::ofstream(place(), std::ios::binary) << bytes;
  }
  std::string there() const {
    return fs::exists(place()) ? read_file(place(), size_t{1} << 20) : "nothing";
  }
  // Files under hidden names.
  int leftovers() const {
    int count = 0;
    if (!fs::exists(adapters_dir())) return 0;
    for (const auto& each : fs::recursive_directory_iterator(adapters_dir())) {
      if (each.path().filename().string().starts_with(".")) ++count;
    }
    return count;
  }

  // Hands over `bytes` in two pieces.
  Fetch sends(const std::string& bytes) {
    return [this, bytes](const std::string& url, const FetchSink& sink) {
      ++fetches_;
      EXPECT_EQ(url, adapter_.url);
      sink(std::string_view(bytes).substr(0, bytes.size() / 2));
      EXPECT_TRUE(there() == "nothing" || there() == "another") << "before it was whole";
      sink(std::string_view(bytes).substr(bytes.size() / 2));
    };
  }
  Fetch fails(int times, const Fetch& then) {
    return [this, times, then](const std::string& url, const FetchSink& sink) {
      if (fetches_ >= times) return then(url, sink);
      ++fetches_;
      sink("a part");
      throw TransientError{{"connection_cut", "example.com", "the connection broke", ""}};
    };
  }

  AdapterPullResult pull(const Fetch& fetch) {
    return pull_adapter(adapter_, options_, fetch, observer_);
  }
  std::string error_code(const Fetch& fetch) {
    try {
      pull(fetch);
    } catch (const Error& e) {
      kind_ = e.kind();
      return e.info().code;
    }
    return "none";
  }

  TemporaryHome home_;
  std::string content_ = random_bytes(5000, 7);
  CatalogAdapter adapter_;
  AdapterPullOptions options_;
  RecordingObserver observer_;
  int fetches_ = 0;
  ErrorKind kind_ = ErrorKind::kInternal;
};

TEST_F(Adapters, ArePulledOnceAndThenThere) {
  EXPECT_FALSE(adapter_state(adapter_).installed);
  const AdapterPullResult result = pull(sends(content_));
  EXPECT_FALSE(result.was_there);
  EXPECT_EQ(result.path, place());
  EXPECT_EQ(there(), content_);
  EXPECT_TRUE(adapter_state(adapter_).verified);
  const AdapterPullResult again = pull(sends(content_));
  EXPECT_TRUE(again.was_there);
  EXPECT_EQ(again.path, place());
  EXPECT_EQ(fetches_, 1);
}

TEST_F(Adapters, AreTriedThreeTimes) {
  EXPECT_EQ(error_code(fails(3, sends(content_))), "connection_cut");
  EXPECT_EQ(kind_, ErrorKind::kIo);
  EXPECT_EQ(fetches_, 3);
  EXPECT_EQ(there(), "nothing");
  EXPECT_NE(observer_.said.find("attempt 2 failed"), std::string::npos) << observer_.said;
  EXPECT_EQ(observer_.said.find("attempt 3 failed"), std::string::npos) << observer_.said;
  fetches_ = 0;
  EXPECT_EQ(pull(fails(2, sends(content_))).path, place());
  EXPECT_EQ(fetches_, 3);
  EXPECT_EQ(there(), content_);
}

TEST_F(Adapters, TooFewBytesAreTriedAgain) {
  EXPECT_EQ(error_code(sends(content_.substr(1))), "adapter_wrong_size");
  EXPECT_EQ(fetches_, 3);
  EXPECT_EQ(there(), "nothing");
}

TEST_F(Adapters, TooManyBytesEndTheTransfer) {
  int pieces = 0;
  const Fetch endless = [&](const std::string&, const FetchSink& sink) {
    for (; pieces < 1000; ++pieces) sink(std::string(1000, 'x'));
  };
  EXPECT_EQ(error_code(endless), "adapter_wrong_size");
  EXPECT_EQ(kind_, ErrorKind::kIo);
  EXPECT_EQ(pieces, 5);
  EXPECT_EQ(there(), "nothing");
}

TEST_F(Adapters, OtherContentIsFinal) {
  EXPECT_EQ(error_code(sends(random_bytes(5000, 8))), "adapter_wrong_hash");
  EXPECT_EQ(kind_, ErrorKind::kIo);
  EXPECT_EQ(fetches_, 1);
  EXPECT_EQ(there(), "nothing");
}

TEST_F(Adapters, AnythingNotTransientIsFinal) {
  const Fetch refused = [&](const std::string&, const FetchSink&) {
    ++fetches_;
    throw IoError{{"server_refused", "example.com", "the server answers 404", ""}};
  };
  EXPECT_EQ(error_code(refused), "server_refused");
  EXPECT_EQ(fetches_, 1);
}

TEST_F(Adapters, AnotherFileStaysUnlessForced) {
  put("another");
  EXPECT_EQ(error_code(sends(content_)), "adapter_differs");
  EXPECT_EQ(kind_, ErrorKind::kUsage);
  EXPECT_EQ(fetches_, 0);
  options_.force = true;
  EXPECT_EQ(error_code(sends(random_bytes(5000, 8))), "adapter_wrong_hash");
  EXPECT_EQ(there(), "another");
  EXPECT_FALSE(pull(sends(content_)).was_there);
  EXPECT_EQ(there(), content_);
}

TEST_F(Adapters, OfTheRightSizeAreStillHashed) {
  put(random_bytes(5000, 8));
  EXPECT_TRUE(adapter_state(adapter_).installed);
  EXPECT_FALSE(adapter_state(adapter_).verified);
}

TEST_F(Adapters, ALicenceIsAcceptedFirst) {
  adapter_.needs_acceptance = true;
  adapter_.license = "A Licence 1.0";
  EXPECT_EQ(error_code(sends(content_)), "license_not_accepted");
  EXPECT_EQ(kind_, ErrorKind::kUsage);
  EXPECT_EQ(fetches_, 0);
  options_.accept_license = true;
  EXPECT_EQ(pull(sends(content_)).path, place());
}

TEST_F(Adapters, PlaintextOfOtherMachinesIsRefused) {
  for (const char* url : {"http://example.com/style.safetensors", "file:///etc/hostname",
                          "http://127.0.0.1.example.com/style.safetensors"}) {
    adapter_.url = url;
    EXPECT_EQ(error_code(sends(content_)), "url_refused") << url;
  }
  EXPECT_EQ(fetches_, 0);
}

TEST_F(Adapters, ACancelledPullLeavesNothing) {
  const Fetch cancelled = [&](const std::string&, const FetchSink& sink) {
    sink("a part");
    observer_.cancel();
    sink("another part");
  };
  EXPECT_THROW(pull(cancelled), Cancelled);
  EXPECT_EQ(there(), "nothing");
}

TEST_F(Adapters, AreFoundByPathThenById) {
  put("x");
  EXPECT_EQ(resolve_adapter(place().string(), "--lora"), place());
  // Of the built-in catalog: without a hash, so that any file of that name is taken.
  const CatalogAdapter* known = find_catalog_adapter(" Flux2-Dev-Turbo-8step");
  ASSERT_NE(known, nullptr);
  const auto code = [](const std::string& text) {
    try {
      resolve_adapter(text, "--lora");
    } catch (const UsageError& e) {
      EXPECT_EQ(e.info().field, "--lora");
      return e.info().code;
    }
    return std::string("none");
  };
  EXPECT_EQ(code(known->id), "adapter_not_installed");
  EXPECT_EQ(code("no-such-adapter"), "file_not_found");
  EXPECT_EQ(code("folder/" + known->id), "file_not_found");
  const fs::path own = adapter_state(*known).path;
  fs::create_directories(own.parent_path());
  std::ofstream(own) << "x";
  EXPECT_EQ(resolve_adapter(known->id, "--lora"), own);
}

// ---- http_fetch() -------------------------------------------------------------------------------

class AdapterFetch : public Adapters {
 protected:
  AdapterFetch() {
    hub_.add("tests/adapters", "style.safetensors", content_, true);
    adapter_.url = hub_.endpoint() + "/tests/adapters/resolve/main/style.safetensors";
  }

  void answer(const FakeFault& fault, int times = 1000) {
    hub_.on_request([fault, times, seen = 0](const FakeRequest& request) mutable {
      return request.store && seen++ < times ? fault : FakeFault{};
    });
  }
  // How often the content was asked for.
  int asked() const {
    const auto requests = hub_.requests();
    return static_cast<int>(std::ranges::count_if(requests, &FakeRequest::store));
  }

  FakeHub hub_;
};

TEST_F(AdapterFetch, FollowsToTheContentWithoutAToken) {
  home_.set("HF_TOKEN", kTestToken);
  EXPECT_EQ(pull(http_fetch(observer_)).path, place());
  EXPECT_EQ(there(), content_);
  for (const FakeRequest& request : hub_.requests()) EXPECT_FALSE(request.has("authorization"));
}

TEST_F(AdapterFetch, ServerErrorsAreTransient) {
  for (const int status : {429, 500, 503}) {
    const int before = asked();
    answer({.status = status});
    EXPECT_EQ(error_code(http_fetch(observer_)),
              status == 429 ? "server_rate_limit" : "server_unavailable");
    EXPECT_EQ(asked() - before, 3) << status;
  }
  answer({.status = 502}, 2);
  EXPECT_EQ(pull(http_fetch(observer_)).path, place());
}

TEST_F(AdapterFetch, RefusalsAreFinal) {
  for (const int status : {401, 403, 404, 206}) {
    const int before = asked();
    answer({.status = status});
    EXPECT_EQ(error_code(http_fetch(observer_)), "server_refused") << status;
    EXPECT_EQ(asked() - before, 1) << status;
  }
}

TEST_F(AdapterFetch, ABrokenConnectionIsTransient) {
  answer({.cut_at = 100}, 2);
  EXPECT_EQ(pull(http_fetch(observer_)).path, place());
  EXPECT_EQ(asked(), 3);
}

TEST_F(AdapterFetch, DoesNotTakeMoreThanTheCatalogSays) {
  adapter_.bytes -= 1;
  EXPECT_EQ(error_code(http_fetch(observer_)), "adapter_wrong_size");
  EXPECT_EQ(asked(), 1);
}

TEST_F(AdapterFetch, ARedirectToPlaintextElsewhereIsRefused) {
  answer({.location = "http://example.com/style.safetensors"});
  EXPECT_EQ(error_code(http_fetch(observer_)), "redirect_refused");
  EXPECT_EQ(asked(), 1);
}

}  // namespace
}  // namespace mere
