// `model pull` as a user runs it, against a hub on this machine.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "fake_hub.h"
#include "program.h"

namespace mere {
namespace {

using Json = nlohmann::json;

constexpr const char* kToken = "hf_THE_SECRET_TOKEN_OF_THE_TESTS";
constexpr const char* kRepository = "tests/klein";

class ModelPull : public ::testing::Test {
 protected:
  ModelPull() {
    const fs::path fixture = fs::path(MERE_FIXTURES) / "klein/model";
    for (const auto& each : fs::recursive_directory_iterator(fixture)) {
      if (!each.is_regular_file()) continue;
      const std::string path = each.path().lexically_relative(fixture).string();
      hub_.add(kRepository, path, read_file(each.path(), size_t{64} << 20),
               each.path().extension() == ".safetensors");
    }
    catalog_ = {
        {{"id", "image-fixture"},
         {"category", "image"},
         {"family", "klein"},
         {"engine", "flux2-klein"},
         {"download_bytes", 1000},
         {"summary", "of the tests"},
         {"sources", {{{"repository", kRepository}, {"revision", "main"}, {"role", "model"}}}}},
        {{"id", "image-large"},
         {"category", "image"},
         {"family", "klein"},
         {"min_memory_gb", 4000},
         {"recommended_memory_gb", 4000},
         {"summary", "of the tests"},
         {"sources", {{{"repository", kRepository}, {"revision", "main"}, {"role", "model"}}}}},
        {{"id", "image-restricted"},
         {"category", "image"},
         {"family", "klein"},
         {"summary", "of the tests"},
         {"sources", {{{"repository", kRepository}, {"revision", "main"}, {"role", "model"}}}},
         {"terms",
          {{{"component", "model"},
            {"license", "A Licence"},
            {"summary", "of the tests"},
            {"source_repository", kRepository},
            {"license_url", "https://example.com/licence"}}}}},
        {{"id", "image-local"},
         {"category", "image"},
         {"summary", "of the tests"},
         {"sources", Json::array()}}};
  }

  ProgramResult pull(std::vector<std::string> arguments, const Program::Watch& watch = {},
                     int columns = -1) {
    arguments.insert(arguments.begin(), {"model", "pull"});
    ProgramResult result = run(arguments, watch, columns);
    for (const std::string* text : {&result.out, &result.err}) {
      EXPECT_EQ(text->find(kToken), std::string::npos) << *text;
      EXPECT_EQ(text->find("SECRET"), std::string::npos) << *text;
    }
    return result;
  }

  ProgramResult run(const std::vector<std::string>& arguments, const Program::Watch& watch = {},
                    int columns = -1) {
    program_.write("catalog.json", Json{{"models", catalog_}, {"adapters", Json::array()}}.dump());
    ProgramSetup setup;
    setup.variables = {"MERERUN_CATALOG=" + (program_.folder() / "catalog.json").string(),
                       "HF_ENDPOINT=" + hub_.endpoint(), std::string("HF_TOKEN=") + kToken,
                       "MERERUN_HUB_CACHE=" + hub_cache().string()};
    if (columns >= 0) setup.variables.emplace_back("TERM=xterm");
    setup.terminal_columns = columns;
    return program_.run(arguments, watch, setup);
  }

  fs::path hub_cache() const { return program_.folder() / "hub"; }
  fs::path installed(const std::string& id) const { return program_.models() / id; }

  Program program_;
  FakeHub hub_;
  Json catalog_;
};

TEST_F(ModelPull, PrintsThePathAndTheModelDraws) {
  const ProgramResult result = pull({"image-fixture"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, installed("image-fixture").string() + "\n");
  EXPECT_NE(result.err.find("[image-fixture] 100%"), std::string::npos) << result.err;
  const ProgramResult drawn = run({"image", "generate", "--model", "image-fixture", "--prompt", "x",
                                   "--steps", "1", "-W", "64", "-H", "64", "--output", "x.png"});
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  // Again: nothing to do, which is said.
  const size_t before = hub_.requests().size();
  const ProgramResult again = pull({"tests/KLEIN "});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out, result.out);
  EXPECT_NE(again.err.find("is here already"), std::string::npos);
  EXPECT_EQ(hub_.requests().size(), before);
}

TEST_F(ModelPull, AnswersInJson) {
  const ProgramResult result = pull({"image-fixture", "--json", "--quiet"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["models"][0]["status"], "installed");
  EXPECT_EQ(json["models"][0]["path"], installed("image-fixture").string());
  EXPECT_EQ(json["models"][0]["commits"][0], FakeHub::commit_of(kRepository));
  EXPECT_GT(json["models"][0]["fetched_bytes"], 1000);
}

TEST_F(ModelPull, PreflightSaysWhatWouldHappen) {
  const ProgramResult ready = pull({"image-fixture", "--preflight", "--json"});
  EXPECT_EQ(ready.status, 0) << ready.err;
  const Json json = Json::parse(ready.out);
  EXPECT_EQ(json["status"], "ready");
  const Json& model = json["models"][0];
  EXPECT_EQ(model["status"], "ready");
  EXPECT_EQ(model["bytes"], model["bytes_to_fetch"]);
  EXPECT_TRUE(model["blockers"].empty());
  EXPECT_EQ(json["actions"][0]["id"], "pull-model");
  EXPECT_FALSE(fs::exists(hub_cache()));

  const ProgramResult blocked = pull({"image-restricted", "--preflight", "--json"});
  EXPECT_EQ(blocked.status, 1);
  const Json reasons = Json::parse(blocked.out);
  EXPECT_EQ(reasons["status"], "blocked");
  EXPECT_EQ(reasons["models"][0]["blockers"][0]["code"], "license_not_accepted");
  EXPECT_EQ(pull({"image-fixture", "--preflight"}).status, 0);
}

TEST_F(ModelPull, TellsWhatStandsInTheWay) {
  EXPECT_EQ(pull({}).status, 64);
  EXPECT_EQ(pull({"image-fixture", "--all"}).status, 64);
  const ProgramResult unknown = pull({"image-unknown"});
  EXPECT_EQ(unknown.status, 64);
  EXPECT_NE(unknown.err.find("image-unknown"), std::string::npos);
  const ProgramResult restricted = pull({"image-restricted"});
  EXPECT_EQ(restricted.status, 64);
  EXPECT_NE(restricted.err.find("https://example.com/licence"), std::string::npos);
  const ProgramResult large = pull({"image-large"});
  EXPECT_EQ(large.status, 1);
  EXPECT_NE(large.err.find("requires at least 4000 GB"), std::string::npos);
  const ProgramResult local = pull({"image-local"});
  EXPECT_EQ(local.status, 0);
  EXPECT_EQ(local.out, "");
  EXPECT_NE(local.err.find("no public source"), std::string::npos);
  EXPECT_TRUE(hub_.requests().empty());
  EXPECT_EQ(pull({"image-restricted", "--accept-license-terms"}).status, 0);
}

TEST_F(ModelPull, AGatedModelNamesThePageAndTheCommand) {
  hub_.set_gate(kRepository, kToken, false);
  const ProgramResult result = pull({"image-fixture", "--json"});
  EXPECT_EQ(result.status, 1);
  const Json error = Json::parse(result.out)["error"];
  EXPECT_EQ(error["code"], "hub_license_not_accepted");
  EXPECT_NE(result.err.find(hub_.endpoint() + "/" + kRepository), std::string::npos);
  EXPECT_NE(result.err.find("HF_TOKEN"), std::string::npos);
  EXPECT_NE(result.err.find("mere.run config set hf-token"), std::string::npos);
}

TEST_F(ModelPull, AllPullsWhatItMay) {
  const ProgramResult result = pull({"--all"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, installed("image-fixture").string() + "\n");
  for (const char* text :
       {"image-large: skipped", "image-restricted: skipped", "image-local: skipped"}) {
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  }
}

TEST_F(ModelPull, StopsOnInterruptAndGoesOnLater) {
  hub_.on_request([](const FakeRequest& request) {
    return request.store ? FakeFault{.bytes_per_s = 200'000} : FakeFault{};
  });
  bool sent = false;
  const ProgramResult stopped =
      pull({"image-fixture", "--progress-json"}, [&](pid_t pid, const std::string& err) {
        if (!sent && err.find("downloading") != std::string::npos) {
          sent = true;
          ::kill(pid, SIGINT);
        }
      });
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_EQ(stopped.out, "");
  EXPECT_FALSE(fs::exists(installed("image-fixture")));
  const Json event = Json::parse(stopped.err.substr(0, stopped.err.find('\n')));
  EXPECT_EQ(event["event"], "progress");
  EXPECT_EQ(event["id"], "image-fixture");
  hub_.on_request({});
  EXPECT_EQ(pull({"image-fixture"}).status, 0);
}

TEST_F(ModelPull, DrawsOneLineOnATerminal) {
  hub_.on_request([](const FakeRequest& request) {
    return request.store ? FakeFault{.bytes_per_s = 3'000'000} : FakeFault{};
  });
  const ProgramResult result = pull({"image-fixture"}, {}, 60);
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.err.find("\r\x1b[K[image-fixture] "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("100%"), std::string::npos);
}

TEST_F(ModelPull, AnEndpointMustBeSafe) {
  program_.write("catalog.json", Json{{"models", catalog_}, {"adapters", Json::array()}}.dump());
  ProgramSetup setup;
  setup.variables = {"MERERUN_CATALOG=" + (program_.folder() / "catalog.json").string(),
                     "HF_ENDPOINT=http://example.invalid"};
  const ProgramResult result = program_.run({"model", "pull", "image-fixture"}, {}, setup);
  EXPECT_EQ(result.status, 64);
  EXPECT_NE(result.err.find("is http to another machine"), std::string::npos);
}

TEST_F(ModelPull, CacheDirAndModelsRoot) {
  const fs::path cache = program_.folder() / "my cache";
  const fs::path models = program_.folder() / "my models";
  const ProgramResult result =
      pull({"image-fixture", "--cache-dir", "my cache", "--models-root", "my models", "-q"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, (models / "image-fixture").string() + "\n");
  EXPECT_TRUE(fs::exists(cache / "models--tests--klein/blobs"));
  EXPECT_FALSE(fs::exists(hub_cache()));
  const ProgramResult drawn =
      run({"image", "generate", "--models-root", "my models", "--model", "image-fixture",
           "--prompt", "x", "--steps", "1", "-W", "64", "-H", "64", "--output", "x.png"});
  EXPECT_EQ(drawn.status, 0) << drawn.err;
}

}  // namespace
}  // namespace mere
