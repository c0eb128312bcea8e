// What the tests of downloads share: a fake hub, a catalog entry for it, folders of their own, and
// an observer that keeps everything that was said.
#pragma once

#include <gtest/gtest.h>
#include <random>

#include "fake_hub.h"
#include "temporary_folder.h"

#include "catalog/pull.h"
#include "core/error.h"

namespace mere {

// Must not come out of the program by any way.
inline constexpr const char* kTestToken = "hf_THE_SECRET_TOKEN_OF_THE_TESTS";

class RecordingObserver : public TransferObserver {
 public:
  void note(std::string_view text) override { said += std::string(text) + "\n"; }
  void warn(std::string_view text) override { said += "warning: " + std::string(text) + "\n"; }
  void on_transfer(const TransferState& state) override {
    last = state;
    if (on_state) on_state(state);
  }

  std::string said;
  TransferState last{};
  std::function<void(const TransferState&)> on_state;

 protected:
  void on_report(Stage, int64_t, int64_t) override {}
};

// Bytes that no compression or luck makes equal.
inline std::string random_bytes(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

class PullSetup : public ::testing::Test {
 protected:
  static constexpr const char* kRepository = "tests/klein";
  static constexpr const char* kWeights = "transformer/model.safetensors";

  PullSetup() {
    hub_.add(kRepository, "model_index.json",
             R"({"_class_name": "Flux2KleinPipeline", "is_distilled": true})");
    hub_.add(kRepository, "README.md", "not wanted");
    hub_.add(kRepository, "empty.txt", "");
    weights_ = random_bytes(600'000, 1);
    hub_.add(kRepository, kWeights, weights_, true);
    hub_.add(kRepository, "vae/model.safetensors", random_bytes(200'000, 2), true);
    model_.id = "image-test";
    model_.category = "image";
    model_.family = "klein";
    model_.engine = "flux2-klein";
    model_.sources = {{kRepository, "main", {}, {"*.md"}, "", "model"}};
    request_.models_dir = folder_.path() / "models";
    request_.hub_dir = folder_.path() / "hub";
    request_.access.endpoint = hub_.endpoint();
    request_.access.token = kTestToken;
    request_.access.token_source = "HF_TOKEN";
    request_.transfer.hub.retry.wait = [this](double seconds) { waits_.push_back(seconds); };
    request_.transfer.parallel = 1;
    request_.free_disk = [](const fs::path&) { return int64_t{1} << 40; };
  }

  void TearDown() override {
    EXPECT_EQ(observer_.said.find(kTestToken), std::string::npos);
    EXPECT_EQ(observer_.said.find("SECRET"), std::string::npos);
    for (const FakeRequest& request : hub_.requests()) {
      EXPECT_FALSE(request.store && request.has("authorization")) << request.path;
    }
  }

  PulledModel pull() { return pull_model(model_, request_, observer_).back(); }

  // The error of a pull; it is added to what was said.
  ErrorInfo pull_error() {
    try {
      pull();
    } catch (const Error& e) {
      observer_.said += std::string(e.what()) + "\n" + e.info().field + "\n";
      return e.info();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  fs::path installed(const std::string& path) const {
    return request_.models_dir / model_.id / path;
  }
  HubRepository repository() const { return {request_.hub_dir, kRepository}; }
  std::string weights_etag() const { return sha256_hex(weights_); }
  std::string read(const fs::path& path) const { return read_file(path, size_t{1} << 30); }
  void expect_whole() const {
    EXPECT_TRUE(is_installed_whole(request_.models_dir / model_.id, model_.id));
    EXPECT_EQ(read(installed(kWeights)), weights_);
  }

  // The fault for the first `times` requests of the weights' bytes (at the store).
  void fail_weights(const FakeFault& fault, int times = 1) {
    hub_.on_request([this, fault, times, seen = 0](const FakeRequest& request) mutable {
      const bool weights = request.store && request.path.find("transformer/") != std::string::npos;
      return weights && seen++ < times ? fault : FakeFault{};
    });
  }
  int weight_requests() const {
    int count = 0;
    for (const FakeRequest& r : hub_.requests()) {
      if (r.store && r.path.find("transformer/") != std::string::npos) ++count;
    }
    return count;
  }

  TemporaryFolder folder_;
  FakeHub hub_;
  std::string weights_;
  CatalogModel model_;
  PullRequest request_;
  RecordingObserver observer_;
  std::vector<double> waits_;
};

}  // namespace mere
