#include "catalog/hub.h"

#include <gtest/gtest.h>

#include "fake_hub.h"

#include "catalog/names.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr const char* kToken = "hf_SECRET";

class HubTest : public ::testing::Test {
 protected:
  HubTest() {
    hub_.add("o/n", "config.json", "{}");
    hub_.add("o/n", "sub/a b#?.txt", "odd name");
    hub_.add("o/n", "model.bin", "weights", true);
  }

  Hub client(const std::string& token = "") {
    HubOptions options;
    options.retry.wait = [this](double seconds) { waits_.push_back(seconds); };
    return {{hub_.endpoint(), token, token.empty() ? "" : "HF_TOKEN"}, options, {}};
  }
  template <typename Action>
  ErrorInfo error(const Action& action) {
    try {
      action();
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("SECRET"), std::string::npos) << e.what();
      return e.info();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
  void always(const FakeFault& fault) {
    hub_.on_request([fault](const FakeRequest&) { return fault; });
  }

  FakeHub hub_;
  std::vector<double> waits_;
};

TEST_F(HubTest, ResolvesABranchAndListsItsFiles) {
  Hub hub = client();
  const std::string commit = hub.resolve_commit("o/n", "main");
  EXPECT_EQ(commit, FakeHub::commit_of("o/n"));
  EXPECT_EQ(hub.resolve_commit("o/n", commit), commit);
  const auto files = hub.list_files("o/n", commit);
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].path, "config.json");
  EXPECT_EQ(files[0].size, 2);
  EXPECT_EQ(files[0].etag, FakeHub::git_blob_hash("{}"));
  EXPECT_EQ(files[1].path, "model.bin");
  EXPECT_EQ(files[1].etag, sha256_hex("weights"));
  EXPECT_EQ(hub_.requests().size(), 2U);
}

TEST_F(HubTest, FollowsPagesOnItsOwnEndpoint) {
  hub_.set_page_size(1);
  EXPECT_EQ(client(kToken).list_files("o/n", FakeHub::commit_of("o/n")).size(), 3U);
  EXPECT_EQ(hub_.requests().size(), 3U);
}

TEST_F(HubTest, AsksForHashesThatTheListLacks) {
  hub_.set_hashes_listed(false);
  const auto files = client().list_files("o/n", FakeHub::commit_of("o/n"));
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[1].etag, sha256_hex("weights"));
  EXPECT_EQ(files[1].size, 7);
  EXPECT_EQ(files[2].etag, FakeHub::git_blob_hash("odd name"));
}

TEST_F(HubTest, TellsTheReasonsOfARefusalApart) {
  const auto resolve = [&](const std::string& token) {
    return error([&] { client(token).resolve_commit("o/n", "main"); });
  };
  always({.status = 401, .error_code = "GatedRepo"});
  const ErrorInfo missing = resolve("");
  EXPECT_EQ(missing.code, "hub_token_missing");
  EXPECT_NE(missing.hint.find(hub_.endpoint() + "/o/n"), std::string::npos);
  EXPECT_NE(missing.hint.find("mere.run config set hf-token"), std::string::npos);
  always({.status = 401});
  const ErrorInfo refused = resolve(kToken);
  EXPECT_EQ(refused.code, "hub_token_refused");
  EXPECT_NE(refused.message.find("HF_TOKEN"), std::string::npos);
  always({.status = 403, .error_code = "GatedRepo"});
  const ErrorInfo gated = resolve(kToken);
  EXPECT_EQ(gated.code, "hub_license_not_accepted");
  EXPECT_NE(gated.hint.find(hub_.endpoint() + "/o/n"), std::string::npos);
  always({.status = 403, .error_message = "no access for hf_SECRET"});
  EXPECT_EQ(resolve(kToken).code, "hub_forbidden");
  always({.status = 403, .error_message = "ask\x1b the owner"});
  EXPECT_NE(resolve(kToken).message.find("ask? the owner"), std::string::npos);
  always({.status = 403});
  EXPECT_EQ(resolve(kToken).code, "hub_forbidden");
  always({.status = 404, .error_code = "RevisionNotFound"});
  EXPECT_EQ(resolve(kToken).code, "hub_not_found");
  always({.status = 418});
  EXPECT_EQ(resolve(kToken).code, "hub_answer");
  EXPECT_TRUE(waits_.empty());  // none of these is tried again
  EXPECT_EQ(hub_.requests().size(), 8U);
}

TEST_F(HubTest, TriesAgainWhatMayPass) {
  hub_.on_request([](const FakeRequest& request) {
    if (request.number == 0) return FakeFault{.status = 500};
    if (request.number == 1) return FakeFault{.status = 429, .retry_after = "7"};
    if (request.number == 2) return FakeFault{.cut_at = 3};
    return FakeFault{};
  });
  EXPECT_EQ(client().resolve_commit("o/n", "main"), FakeHub::commit_of("o/n"));
  ASSERT_EQ(waits_.size(), 3U);
  EXPECT_GE(waits_[0], 0.5);
  EXPECT_LE(waits_[0], 1.0);
  EXPECT_EQ(waits_[1], 7.0);
  EXPECT_GE(waits_[2], 2.0);
  EXPECT_LE(waits_[2], 4.0);
}

TEST_F(HubTest, GivesUpInTheEnd) {
  always({.status = 503});
  EXPECT_EQ(error([&] { client().resolve_commit("o/n", "main"); }).code, "hub_unavailable");
  EXPECT_EQ(waits_.size(), 5U);
  waits_.clear();
  always({.status = 429, .retry_after = "86400"});
  EXPECT_EQ(error([&] { client().resolve_commit("o/n", "main"); }).code, "hub_rate_limit");
  EXPECT_TRUE(waits_.empty());
}

TEST_F(HubTest, RefusesWhatIsNoListing) {
  const auto listing_error = [&](const std::string& json) {
    hub_.set_listing("o/n", json);
    return error([&] { client().list_files("o/n", FakeHub::commit_of("o/n")); }).code;
  };
  EXPECT_EQ(listing_error("{}"), "hub_answer");
  EXPECT_EQ(listing_error("[1]"), "json_invalid");
  EXPECT_EQ(listing_error("not json"), "json_invalid");
  EXPECT_EQ(listing_error(R"([{"path":"a","size":-1}])"), "json_invalid");
  EXPECT_EQ(listing_error(R"([{"path":"a","size":99999999999999999}])"), "json_invalid");
  EXPECT_EQ(listing_error(R"([{"path":1,"size":1}])"), "json_invalid");
}

TEST(HubNames, AreChecked) {
  EXPECT_TRUE(is_repository("black-forest-labs/FLUX.2-klein-4B"));
  for (const char* id : {"", "name", "a/b/c", "../x", "a/..", "a/b--c", "a/.b", "a/ b", "a/b?",
                         "/a", "a/", "-a/b"}) {
    EXPECT_FALSE(is_repository(id)) << id;
  }
  EXPECT_TRUE(is_revision("main"));
  EXPECT_TRUE(is_revision("refs/pr/1"));
  for (const char* id : {"", "..", "a/../b", "/a", "a b", "a?b", "a\\b"}) {
    EXPECT_FALSE(is_revision(id)) << id;
  }
}

TEST(HubPaths, ThatLeaveTheirFolderAreRefused) {
  EXPECT_EQ(path_problem("transformer/model-00001-of-00002.safetensors"), "");
  EXPECT_EQ(path_problem("...x/..y"), "");
  for (const std::string& path :
       {std::string(""), std::string("/etc/passwd"), std::string("../x"), std::string("a/../../x"),
        std::string("a/.."), std::string("./a"), std::string("a//b"), std::string("a/"),
        std::string("a\\b"), std::string("a\nb"), std::string("a\0b", 3), std::string("a\x7f"),
        std::string(300, 'a'), std::string(150, 'a') + "/" + std::string(149, 'b')}) {
    EXPECT_NE(path_problem(path), "") << path;
  }
}

TEST(HubAccessTest, ComesFromTheEnvironment) {
  SilentProgress progress;
  ::setenv("HF_TOKEN", "  hf_one\n", 1);
  ::setenv("HUGGING_FACE_HUB_TOKEN", "hf_two", 1);
  ::setenv("HF_ENDPOINT", "https://mirror.example/", 1);
  HubAccess access = hub_access(progress);
  EXPECT_EQ(access.token, "hf_one");
  EXPECT_EQ(access.token_source, "HF_TOKEN");
  EXPECT_EQ(access.endpoint, "https://mirror.example");
  ::unsetenv("HF_TOKEN");
  EXPECT_EQ(hub_access(progress).token_source, "HUGGING_FACE_HUB_TOKEN");
  ::setenv("HF_ENDPOINT", "http://mirror.example", 1);
  EXPECT_THROW(hub_access(progress), UsageError);
  ::unsetenv("HUGGING_FACE_HUB_TOKEN");
  ::unsetenv("HF_ENDPOINT");
  EXPECT_EQ(hub_access(progress).endpoint, kDefaultHubEndpoint);
  EXPECT_THROW(Hub({std::string(kDefaultHubEndpoint), "a\r\nX: y", "HF_TOKEN"}, {}, {}),
               UsageError);
}

}  // namespace
}  // namespace mere
