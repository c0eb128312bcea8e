#include <sys/stat.h>

#include "pull_setup.h"

#include "catalog/model_root.h"
#include "core/json.h"

namespace mere {
namespace {

class Pull : public PullSetup {
 protected:
  // An entry of a listing whose content nobody will ask for.
  static std::string entry(const std::string& path) {
    return Json{{"type", "file"}, {"path", path}, {"size", 1}, {"oid", std::string(40, 'a')}}.dump(
        -1, ' ', false, Json::error_handler_t::replace);
  }
  ErrorInfo listing_error(const std::vector<std::string>& paths) {
    std::string list;
    for (const std::string& path : paths) list += (list.empty() ? "" : ",") + entry(path);
    hub_.set_listing(kRepository, "[" + list + "]");
    return pull_error();
  }
  Json manifest() const { return parse_json_file(installed("mererun_model.json")); }
};

TEST_F(Pull, InstallsTheChosenFiles) {
  const PulledModel pulled = pull();
  EXPECT_FALSE(pulled.already_there);
  EXPECT_EQ(pulled.path, request_.models_dir / "image-test");
  EXPECT_EQ(pulled.files, 4);
  expect_whole();
  EXPECT_FALSE(fs::exists(installed("README.md")));
  EXPECT_EQ(read(installed("empty.txt")), "");
  EXPECT_EQ(observer_.last.files_done, 4);
  EXPECT_EQ(observer_.last.bytes_done, observer_.last.bytes_total);
  const std::string commit = FakeHub::commit_of(kRepository);
  EXPECT_EQ(fs::read_symlink(repository().folder() / "snapshots" / commit / kWeights),
            "../../../blobs/" + weights_etag());
  EXPECT_EQ(read(repository().folder() / "snapshots" / commit / kWeights), weights_);
  EXPECT_EQ(read(repository().folder() / "refs/main"), commit);
  EXPECT_EQ(fs::read_symlink(installed(kWeights)),
            fs::canonical(repository().blob(weights_etag())));
}

TEST_F(Pull, WritesTheManifest) {
  model_.default_steps = 4;
  model_.quantization = {4, 64, "mlx"};
  model_.terms = {{"model", "A Licence", "not for sale", "https://example.com/l", kRepository}};
  request_.accept_license = true;
  pull();
  const Json json = manifest();
  EXPECT_EQ(json["schemaVersion"], 3);
  EXPECT_EQ(json["id"], "image-test");
  EXPECT_EQ(json["family"], "klein");
  EXPECT_EQ(json["defaults"]["steps"], 4);
  EXPECT_EQ(json["quantization"]["groupSize"], 64);
  EXPECT_EQ(json["upstreamRepoId"], kRepository);
  EXPECT_EQ(json["sources"][0]["revision"], FakeHub::commit_of(kRepository));
  EXPECT_EQ(json["usageTerms"][0]["source_revision"], FakeHub::commit_of(kRepository));
  EXPECT_EQ(json["usageTermsAcknowledged"], true);
  ASSERT_EQ(json["files"].size(), 4U);
  for (const Json& file : json["files"]) {
    EXPECT_EQ(sha256_file(installed(file["path"])), file["sha256"].get<std::string>());
    EXPECT_EQ(file["source"], 0);
  }
  const ModelRoot root = resolve_image_model("image-test", request_.models_dir, {});
  EXPECT_EQ(root.manifest.steps, 4);
}

TEST_F(Pull, AsksNobodyWhenEverythingIsThere) {
  pull();
  const size_t before = hub_.requests().size();
  EXPECT_TRUE(pull().already_there);
  EXPECT_EQ(hub_.requests().size(), before);
  EXPECT_NE(observer_.said.find("is here already"), std::string::npos);
}

TEST_F(Pull, TakesBlobsThatAreThereWithoutFetchingThem) {
  pull();
  fs::remove_all(request_.models_dir);
  fs::remove(repository().folder() / ".mererun-verified.json");  // another program's cache
  const int before = weight_requests();
  const PulledModel pulled = pull();
  expect_whole();
  EXPECT_EQ(weight_requests(), before);
  EXPECT_EQ(pulled.fetched_bytes, 0);
}

TEST_F(Pull, FetchesADamagedBlobAgain) {
  pull();
  fs::remove_all(request_.models_dir);
  std::string wrong = weights_;
  wrong[5] ^= 1;
  std::ofstream(repository().blob(weights_etag()), std::ios::binary) << wrong;
  pull();
  expect_whole();
}

TEST_F(Pull, ForceRepairs) {
  pull();
  std::string wrong = weights_;
  wrong[5] ^= 1;
  // Same size, and the record is made to believe it.
  std::ofstream(repository().blob(weights_etag()), std::ios::binary) << wrong;
  HubRepository record = repository();
  record.set_verified(weights_etag(), weights_etag());
  record.save_verified();
  EXPECT_TRUE(pull().already_there);
  request_.force = true;
  EXPECT_FALSE(pull().already_there);
  expect_whole();
}

TEST_F(Pull, RepairsAnInstallThatLostAFile) {
  pull();
  fs::remove(installed(kWeights));
  EXPECT_FALSE(is_installed_whole(request_.models_dir / "image-test", "image-test"));
  EXPECT_FALSE(pull().already_there);
  expect_whole();
}

TEST_F(Pull, DoesNotReplaceSomebodysFolder) {
  fs::create_directories(installed("transformer"));
  std::ofstream(installed("transformer/mine.safetensors")) << "work";
  EXPECT_EQ(pull_error().code, "install_in_the_way");
  request_.force = true;
  EXPECT_EQ(pull_error().code, "install_in_the_way");
  EXPECT_EQ(read(installed("transformer/mine.safetensors")), "work");
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(Pull, LeavesNothingHidden) {
  fs::create_directories(request_.models_dir / ".image-test.installing-1/transformer");
  pull();
  int entries = 0;
  for ([[maybe_unused]] const auto& each : fs::directory_iterator(request_.models_dir)) ++entries;
  EXPECT_EQ(entries, 1);
}

TEST_F(Pull, MountsOtherRepositories) {
  hub_.add("tests/vae", "diffusion.safetensors", "vae bytes", true);
  hub_.add("tests/vae", "other.txt", "x");
  model_.sources.push_back(
      {"tests/vae", FakeHub::commit_of("tests/vae"), {"*.safetensors"}, {}, "extra/vae", "vae"});
  pull();
  expect_whole();
  EXPECT_EQ(read(installed("extra/vae/diffusion.safetensors")), "vae bytes");
  EXPECT_EQ(manifest()["sources"][1]["destination_path"], "extra/vae");
  // A commit is no branch: nothing is remembered for it.
  EXPECT_FALSE(fs::exists(request_.hub_dir / "models--tests--vae/refs"));
}

TEST_F(Pull, RefusesHostilePaths) {
  for (const std::string& path :
       {std::string("../../x"), std::string("/etc/x"), std::string("a/../../x"),
        std::string("a\\b"), std::string("a//b"), std::string("a\0b", 3), std::string("a\nb"),
        std::string(300, 'a'), std::string("a/./b")}) {
    EXPECT_EQ(listing_error({"model_index.json", path}).code, "path_refused") << path;
  }
  EXPECT_EQ(listing_error({"a", "a"}).code, "path_refused");
  EXPECT_EQ(listing_error({"Model.bin", "model.bin"}).code, "path_refused");
  EXPECT_EQ(listing_error({"a", "a/b"}).code, "path_refused");
  hub_.set_listing(kRepository, R"([{"type":"file","path":"a","size":1,"oid":"../../../x"}])");
  EXPECT_EQ(pull_error().code, "hub_not_found");  // it has no hash that could be asked for
  hub_.set_listing(kRepository, "[]");
  EXPECT_EQ(pull_error().code, "hub_files_missing");
  // What nobody asks for does no harm.
  model_.sources[0].include = {"*.bin"};
  EXPECT_EQ(listing_error({"../../x"}).code, "hub_files_missing");
  EXPECT_FALSE(fs::exists(request_.models_dir / "image-test"));
}

TEST_F(Pull, DoesNotFollowLinksInTheStore) {
  const fs::path outside = folder_.write("outside", "untouched");
  const HubRepository store = repository();
  fs::create_directories(store.blob("x").parent_path());
  fs::create_symlink(outside, store.part(weights_etag()));
  fs::create_symlink(outside, store.blob(weights_etag()));
  pull();
  expect_whole();
  EXPECT_EQ(read(outside), "untouched");
}

TEST_F(Pull, IgnoresAManifestFromTheHub) {
  hub_.add(kRepository, "mererun_model.json", R"({"family": "other"})");
  pull();
  EXPECT_EQ(manifest()["family"], "klein");
}

TEST_F(Pull, GatesAskNobody) {
  const auto code = [&] { return pull_error().code; };
  model_.min_memory_gb = 64;
  request_.physical_memory_bytes = int64_t{31} << 30;
  const ErrorInfo memory = pull_error();
  EXPECT_EQ(memory.code, "model_unsupported");
  EXPECT_NE(memory.message.find("requires at least 64 GB"), std::string::npos);
  EXPECT_NE(memory.message.find("detected 31 GB"), std::string::npos);
  request_.allow_unsupported = true;
  model_.terms = {{"model", "A Licence", "", "https://example.com/licence", kRepository}};
  const ErrorInfo licence = pull_error();
  EXPECT_EQ(licence.code, "license_not_accepted");
  EXPECT_NE(licence.hint.find("https://example.com/licence"), std::string::npos);
  EXPECT_NE(licence.hint.find("--accept-model-license"), std::string::npos);
  request_.accept_license = true;
  model_.needs_token = true;
  request_.access = {};
  EXPECT_EQ(code(), "hub_token_missing");
  model_.sources.clear();
  EXPECT_EQ(code(), "no_public_source");
  EXPECT_TRUE(hub_.requests().empty());
  EXPECT_FALSE(fs::exists(request_.hub_dir));
}

TEST_F(Pull, MemoryThatFirmwareKeepsDoesNotCount) {
  model_.min_memory_gb = 16;
  request_.physical_memory_bytes = 16'500'000'000;  // what a machine of 16 GB reports
  EXPECT_TRUE(local_blockers(model_, request_).empty());
}

TEST_F(Pull, GatedRepositoriesTellWhatIsMissing) {
  hub_.set_gate(kRepository, kTestToken, false);
  EXPECT_EQ(pull_error().code, "hub_license_not_accepted");
  hub_.set_gate(kRepository, "another", true);
  EXPECT_EQ(pull_error().code, "hub_token_refused");
  hub_.set_gate(kRepository, kTestToken, true);
  request_.access.token.clear();
  EXPECT_EQ(pull_error().code, "hub_token_missing");
  request_.access.token = kTestToken;
  pull();
  expect_whole();
}

TEST_F(Pull, LooksAtTheDisksBeforeTheFirstByte) {
  const auto free = [&](int64_t hub, int64_t models) {
    request_.free_disk = [this, hub, models](const fs::path& path) {
      return path == request_.hub_dir ? hub : models;
    };
  };
  const int64_t gib = int64_t{1} << 30;
  free(2 * gib, gib);
  EXPECT_EQ(pull_error().code, "disk_space");
  EXPECT_EQ(weight_requests(), 0);
  free(100 * gib, 1 << 20);
  EXPECT_EQ(pull_error().code, "disk_space");
  model_.download_bytes = 100 * gib;  // a reserve of 20 GiB
  free(19 * gib, gib);
  EXPECT_EQ(pull_error().code, "disk_space");
  model_.download_bytes.reset();
  free(3 * gib, gib);
  pull();
  EXPECT_NE(observer_.said.find("will be free"), std::string::npos);
  // Nothing to fetch, nothing to ask for.
  fs::remove_all(request_.models_dir);
  free(0, gib);
  pull();
  expect_whole();
}

TEST_F(Pull, PreflightWritesNothing) {
  const PullPlan plan = plan_pull(model_, request_, observer_);
  EXPECT_TRUE(plan.blockers.empty());
  EXPECT_EQ(plan.files.size(), 4U);
  EXPECT_EQ(plan.fetch_bytes, plan.total_bytes);
  EXPECT_GT(plan.total_bytes, 800'000);
  EXPECT_FALSE(fs::exists(request_.hub_dir));
  EXPECT_FALSE(fs::exists(request_.models_dir));
}

TEST_F(Pull, ASecondPullWaitsAndThenFindsEverything) {
  fail_weights({.bytes_per_s = 1'500'000});
  RecordingObserver other;
  std::thread second;
  observer_.on_state = [&](const TransferState& state) {
    if (state.bytes_done > 0 && !second.joinable()) {
      second = std::thread([&] { pull_model(model_, request_, other); });
    }
  };
  pull();
  ASSERT_TRUE(second.joinable());
  second.join();
  expect_whole();
  EXPECT_EQ(weight_requests(), 1);
  EXPECT_NE(other.said.find("waiting for its end"), std::string::npos);
  EXPECT_NE(other.said.find("is here already"), std::string::npos);
}

TEST_F(Pull, SeveralFilesAtOnce) {
  for (int i = 0; i < 12; ++i) {
    hub_.add(kRepository, "shard-" + std::to_string(i), random_bytes(50'000, 100 + i), i % 2 == 0);
  }
  request_.transfer.parallel = 4;
  EXPECT_EQ(pull().files, 16);
  expect_whole();
}

TEST_F(Pull, WorksFromALocalMirrorWithoutHashesInItsList) {
  hub_.set_hashes_listed(false);
  pull();
  expect_whole();
}

TEST_F(Pull, AFileThatTheCatalogPinsMustBeThatOne) {
  const std::string content = random_bytes(1000, 7);
  hub_.add(kRepository, "pinned.bin", content, true);
  model_.sources[0].pins = {{"pinned.bin", 1000, sha256_hex(random_bytes(1000, 8))}};
  EXPECT_EQ(pull_error().code, "content_mismatch");
  EXPECT_FALSE(fs::exists(request_.models_dir / "image-test"));
  model_.sources[0].pins[0].sha256 = sha256_hex(content);
  pull();
  EXPECT_TRUE(fs::exists(request_.models_dir / "image-test/pinned.bin"));
}

TEST_F(Pull, WhatDoesNotOpenIsNotInstalled) {
  model_.family.clear();
  model_.sources[0].exclude = {"*.md", "model_index.json"};
  EXPECT_EQ(pull_error().code, "weights_damaged");  // random bytes are no checkpoint
  EXPECT_FALSE(fs::exists(request_.models_dir / "image-test"));
  EXPECT_TRUE(fs::is_empty(request_.models_dir));
}

TEST_F(Pull, TheManifestAndLinksOpenAsAModelFolder) {
  pull();
  const fs::path root = request_.models_dir / "image-test";
  EXPECT_EQ(resolve_model_file(root / "transformer", "model.safetensors"),
            fs::canonical(root / "transformer") / "model.safetensors");
  EXPECT_THROW(resolve_inside(root / "transformer", "model.safetensors"), IoError);
  // Links to anything else stay refused.
  fs::create_symlink(folder_.write("secret", "x"), root / "transformer/leak.safetensors");
  EXPECT_THROW(resolve_model_file(root / "transformer", "leak.safetensors"), IoError);
  EXPECT_THROW(resolve_model_file(root / "transformer", "../../../secret"), IoError);
}

}  // namespace
}  // namespace mere
