// One file against every fault that a hub, a proxy or a disk can bring.
#include <signal.h>
#include <sys/mount.h>

#include "pull_setup.h"

#include "core/json.h"

namespace mere {
namespace {

class PullTransfer : public PullSetup {};

TEST_F(PullTransfer, GoesOnWhereACutConnectionStopped) {
  fail_weights({.cut_at = 250'000});
  pull();
  expect_whole();
  const auto requests = hub_.requests();
  EXPECT_EQ(weight_requests(), 2);
  const std::string etag = "\"" + weights_etag() + "\"";
  const auto second = std::ranges::find_if(
      requests, [](const FakeRequest& r) { return r.store && r.has("range"); });
  ASSERT_NE(second, requests.end());
  EXPECT_EQ(second->headers.at("range"), "bytes=250000-");
  EXPECT_EQ(second->headers.at("if-range"), etag);
  EXPECT_EQ(waits_.size(), 1U);
}

TEST_F(PullTransfer, GoesOnInANewRun) {
  request_.transfer.hub.retry.tries = 1;
  fail_weights({.cut_at = 250'000});
  EXPECT_EQ(pull_error().code, "connection_cut");
  EXPECT_FALSE(fs::exists(request_.models_dir / model_.id));
  EXPECT_EQ(repository().part_bytes(weights_etag(), 600'000), 250'000);
  const PullPlan plan = plan_pull(model_, request_, observer_);
  EXPECT_EQ(plan.total_bytes - plan.fetch_bytes, 250'000);
  const PulledModel pulled = pull();
  expect_whole();
  EXPECT_LT(pulled.fetched_bytes, 600'000);
  EXPECT_FALSE(fs::exists(repository().part(weights_etag())));
  EXPECT_FALSE(fs::exists(repository().part_note(weights_etag())));
}

TEST_F(PullTransfer, StartsOverWhenTheServerSendsEverything) {
  hub_.on_request([seen = 0](const FakeRequest& r) mutable {
    if (!r.store || r.path.find("transformer/") == std::string::npos) return FakeFault{};
    return ++seen == 1 ? FakeFault{.cut_at = 250'000} : FakeFault{.ignore_range = true};
  });
  pull();
  expect_whole();
}

TEST_F(PullTransfer, ThrowsAPartAwayWhoseETagChanged) {
  hub_.on_request([seen = 0](const FakeRequest& r) mutable {
    if (!r.store || r.path.find("transformer/") == std::string::npos) return FakeFault{};
    return ++seen == 1 ? FakeFault{.cut_at = 250'000, .etag = "\"old\""} : FakeFault{};
  });
  pull();  // If-Range does not match: everything comes again
  expect_whole();
}

TEST_F(PullTransfer, NoticesAChangedETagThatTheServerDoesNot) {
  hub_.on_request([seen = 0](const FakeRequest& r) mutable {
    if (!r.store || r.path.find("transformer/") == std::string::npos) return FakeFault{};
    ++seen;
    if (seen == 1) return FakeFault{.cut_at = 250'000, .etag = "\"old\""};
    return FakeFault{.etag = "\"new\"", .ignore_if_range = true};
  });
  pull();
  expect_whole();
  EXPECT_EQ(weight_requests(), 3);
}

TEST_F(PullTransfer, FetchesWrongBytesOnceMore) {
  fail_weights({.corrupt_at = 300'000});
  pull();
  expect_whole();
  EXPECT_EQ(weight_requests(), 2);
}

TEST_F(PullTransfer, ReportsBytesThatStayWrong) {
  fail_weights({.corrupt_at = 300'000}, 100);
  const ErrorInfo info = pull_error();
  EXPECT_EQ(info.code, "content_mismatch");
  std::string wrong = weights_;
  wrong[300'000] ^= 1;
  EXPECT_NE(info.message.find(kWeights), std::string::npos);
  EXPECT_NE(info.message.find("expected " + weights_etag()), std::string::npos);
  EXPECT_NE(info.message.find("got " + sha256_hex(wrong)), std::string::npos);
  EXPECT_FALSE(fs::exists(repository().blob(weights_etag())));
  EXPECT_FALSE(fs::exists(repository().part(weights_etag())));
  EXPECT_FALSE(fs::exists(request_.models_dir / model_.id));
}

TEST_F(PullTransfer, FindsASpoiltPart) {
  request_.transfer.hub.retry.tries = 1;
  fail_weights({.cut_at = 250'000});
  pull_error();
  std::string part = read(repository().part(weights_etag()));
  part[1000] ^= 1;
  std::ofstream(repository().part(weights_etag()), std::ios::binary) << part;
  pull();
  expect_whole();
}

TEST_F(PullTransfer, RefusesAWrongSize) {
  fail_weights({.claim_size = 500'000}, 100);
  const ErrorInfo info = pull_error();
  EXPECT_EQ(info.code, "content_mismatch");
  EXPECT_NE(info.message.find("600000"), std::string::npos);
  EXPECT_NE(info.message.find("500000"), std::string::npos);
}

TEST_F(PullTransfer, RefusesMoreThanWasListed) {
  fail_weights({.chunked = true, .body = weights_ + "more"}, 100);
  EXPECT_EQ(pull_error().code, "content_mismatch");
}

TEST_F(PullTransfer, TakesAnswersWithoutALength) {
  fail_weights({.no_length = true});
  pull();
  expect_whole();
}

TEST_F(PullTransfer, TakesChunks) {
  fail_weights({.chunked = true});
  pull();
  expect_whole();
}

TEST_F(PullTransfer, GoesOnAfterAnAnswerWithoutALengthThatEndsEarly) {
  fail_weights({.cut_at = 100'000, .no_length = true});
  pull();
  expect_whole();
}

TEST_F(PullTransfer, TakesATrickle) {
  request_.transfer.hub.timeouts.stall_seconds = 0.5;
  fail_weights({.bytes_per_s = 3'000'000});
  pull();
  expect_whole();
}

TEST_F(PullTransfer, LeavesAHostThatStops) {
  request_.transfer.hub.timeouts.stall_seconds = 0.2;
  fail_weights({.cut_at = 100'000, .hang_in_body = true});
  pull();
  expect_whole();
  fs::remove_all(request_.models_dir);
  fs::remove_all(request_.hub_dir);
  fail_weights({.hang = true});
  pull();
  expect_whole();
}

TEST_F(PullTransfer, WaitsAsLongAsTheServerAsks) {
  fail_weights({.status = 429, .retry_after = "9"});
  pull();
  expect_whole();
  ASSERT_EQ(waits_.size(), 1U);
  EXPECT_EQ(waits_[0], 9);
}

TEST_F(PullTransfer, TriesServerErrorsAgainUpToALimit) {
  fail_weights({.status = 503}, 3);
  pull();
  expect_whole();
  EXPECT_EQ(waits_.size(), 3U);
  fs::remove_all(request_.hub_dir);
  fs::remove_all(request_.models_dir);
  fail_weights({.status = 500}, 1000);
  EXPECT_EQ(pull_error().code, "hub_unavailable");
}

TEST_F(PullTransfer, StartsOverAfter416) {
  hub_.on_request([seen = 0](const FakeRequest& r) mutable {
    if (!r.store || r.path.find("transformer/") == std::string::npos) return FakeFault{};
    ++seen;
    if (seen == 1) return FakeFault{.cut_at = 250'000};
    return seen == 2 ? FakeFault{.status = 416} : FakeFault{};
  });
  pull();
  expect_whole();
}

TEST_F(PullTransfer, DoesNotTakeAnotherRangeThanItAskedFor) {
  hub_.on_request([seen = 0](const FakeRequest& r) mutable {
    if (!r.store || r.path.find("transformer/") == std::string::npos) return FakeFault{};
    ++seen;
    if (seen == 1) return FakeFault{.cut_at = 250'000};
    return seen == 2 ? FakeFault{.wrong_range = true} : FakeFault{};
  });
  pull();
  expect_whole();
}

TEST_F(PullTransfer, RecognisesAPointerInsteadOfAFile) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + weights_etag() +
      "\nsize 600000\n";
  fail_weights({.body = pointer}, 100);
  EXPECT_EQ(pull_error().code, "lfs_pointer");
  hub_.on_request({});
  hub_.add(kRepository, kWeights, pointer);  // as a mirror that copied pointers
  EXPECT_EQ(pull_error().code, "lfs_pointer");
}

TEST_F(PullTransfer, DoesNotTryAgainWhatIsForbidden) {
  for (const int status : {401, 403, 404}) {
    const int before = weight_requests();
    fail_weights({.status = status}, 100);
    pull_error();
    EXPECT_EQ(weight_requests(), before + 1);
  }
  EXPECT_TRUE(waits_.empty());
}

TEST_F(PullTransfer, StopsAtOnceAndGoesOnLater) {
  request_.transfer.parallel = 4;
  fail_weights({.bytes_per_s = 100'000});
  observer_.on_state = [this](const TransferState& state) {
    if (state.bytes_done > 210'000) observer_.cancel();
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(pull(), Cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_GT(repository().part_bytes(weights_etag(), 600'000), 0);
  hub_.on_request({});
  RecordingObserver other;
  pull_model(model_, request_, other);
  expect_whole();
}

TEST_F(PullTransfer, SaysThatTheDiskIsFullAndGoesOnLater) {
  fs::create_directories(request_.hub_dir);
  if (::mount("tmpfs", request_.hub_dir.c_str(), "tmpfs", 0, "size=400k") != 0) {
    GTEST_SKIP() << "needs the right to mount";
  }
  const ErrorInfo info = pull_error();
  EXPECT_EQ(info.code, "disk_full");
  const int64_t part = repository().part_bytes(weights_etag(), 600'000);
  EXPECT_GT(part, 0);
  ::mount("tmpfs", request_.hub_dir.c_str(), "tmpfs", MS_REMOUNT, "size=20m");
  pull();
  expect_whole();
  const auto requests = hub_.requests();
  EXPECT_TRUE(std::ranges::any_of(requests, [&](const FakeRequest& r) {
    return r.has("range") && r.headers.at("range") == "bytes=" + std::to_string(part) + "-";
  }));
  ::umount2(request_.hub_dir.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace mere
