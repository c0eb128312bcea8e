// `adapter` as a user runs it, against a hub on this machine, and what `image generate` makes of an
// adapter's id.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "fake_hub.h"
#include "program.h"

namespace mere {
namespace {

using Json = nlohmann::json;

class Adapter : public ::testing::Test {
 protected:
  Adapter() : content_(read_file(fixture("lora/bfl_ai_toolkit.safetensors"), size_t{64} << 20)) {
    hub_.add("tests/adapters", "style.safetensors", content_, true);
    const Json whole = {{"id", "style-test"},
                        {"version", "3"},
                        {"base", "image-fixture"},
                        {"url", hub_.endpoint() + "/tests/adapters/resolve/main/style.safetensors"},
                        {"bytes", content_.size()},
                        {"sha256", sha256_hex(content_)},
                        {"license", "A Licence 1.0"}};
    Json restricted = whole;
    restricted["id"] = "style-restricted";
    restricted["needs_acceptance"] = true;
    adapters_ = {whole, restricted, {{"id", "style-local"}}};
  }

  static fs::path fixture(const std::string& name) {
    return fs::path(MERE_FIXTURES) / "klein" / name;
  }

  ProgramResult run(const std::vector<std::string>& arguments, const Program::Watch& watch = {},
                    int columns = -1) {
    program_.write("catalog.json", Json{{"models", Json::array()}, {"adapters", adapters_}}.dump());
    ProgramSetup setup;
    setup.variables = {"MERERUN_CATALOG=" + (program_.folder() / "catalog.json").string()};
    if (columns >= 0) setup.variables.emplace_back("TERM=xterm");
    setup.terminal_columns = columns;
    return program_.run(arguments, watch, setup);
  }
  ProgramResult pull(std::vector<std::string> arguments, const Program::Watch& watch = {},
                     int columns = -1) {
    arguments.insert(arguments.begin(), {"adapter", "pull"});
    return run(arguments, watch, columns);
  }
  ProgramResult draw(const std::string& lora) {
    return run({"image",    "generate", "--model",  fixture("model").string(),
                "--prompt", "x",        "--steps",  "1",
                "-W",       "64",       "-H",       "64",
                "--seed",   "1",        "--output", "x.png",
                "--json",   "--quiet",  "--lora",   lora});
  }

  fs::path place(const std::string& id = "style-test") const {
    return program_.models().parent_path() / "adapters" / id / "3/style.safetensors";
  }
  // Files below the folder of adapters, hidden ones too.
  int files() const {
    const fs::path folder = program_.models().parent_path() / "adapters";
    int count = 0;
    if (!fs::exists(folder)) return 0;
    for (const auto& each : fs::recursive_directory_iterator(folder)) {
      if (each.is_regular_file()) ++count;
    }
    return count;
  }

  Program program_;
  FakeHub hub_;
  std::string content_;
  Json adapters_;
};

TEST_F(Adapter, PullPrintsThePathAlone) {
  const ProgramResult result = pull({"Style-Test"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, place().string() + "\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(read_file(place(), size_t{64} << 20), content_);
  const size_t before = hub_.requests().size();
  const ProgramResult again = pull({"style-test"});
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(again.out, result.out);
  EXPECT_NE(again.err.find("is here already"), std::string::npos) << again.err;
  EXPECT_EQ(hub_.requests().size(), before);
  EXPECT_EQ(pull({"style-test", "-q"}).err, "");
}

TEST_F(Adapter, PullShowsALineOnATerminal) {
  const ProgramResult result = pull({"style-test"}, {}, 60);
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.err.find("\r\x1b[K[style-test] 100%"), std::string::npos) << result.err;
  EXPECT_EQ(pull({"style-test", "--force", "--quiet"}, {}, 60).err, "");
}

TEST_F(Adapter, PullReplacesAnotherFileWhenForced) {
  ASSERT_EQ(pull({"style-test"}).status, 0);
  const auto write = [&](const std::string& bytes) {
    fs::remove(place());
    fs::copy_file(program_.write("other", bytes), place());
  };
  write("another");
  const ProgramResult refused = pull({"style-test"});
  EXPECT_EQ(refused.status, 64);
  EXPECT_EQ(refused.out, "");
  EXPECT_NE(refused.err.find("--force"), std::string::npos) << refused.err;
  EXPECT_EQ(read_file(place(), 100), "another");
  EXPECT_EQ(draw("style-test").status, 1);
  const ProgramResult forced = pull({"style-test", "--force"});
  EXPECT_EQ(forced.status, 0) << forced.err;
  EXPECT_EQ(forced.out, place().string() + "\n");
  EXPECT_EQ(read_file(place(), size_t{64} << 20), content_);
}

TEST_F(Adapter, PullTellsWhatStandsInTheWay) {
  EXPECT_EQ(pull({}).status, 64);
  const ProgramResult unknown = pull({"style-unknown"});
  EXPECT_EQ(unknown.status, 64);
  EXPECT_NE(unknown.err.find("style-unknown"), std::string::npos);
  const ProgramResult restricted = pull({"style-restricted"});
  EXPECT_EQ(restricted.status, 64);
  EXPECT_NE(restricted.err.find("A Licence 1.0"), std::string::npos) << restricted.err;
  EXPECT_NE(restricted.err.find("--accept-license"), std::string::npos);
  const ProgramResult local = pull({"style-local"});
  EXPECT_EQ(local.status, 0);
  EXPECT_EQ(local.out, "");
  EXPECT_NE(local.err.find("no public source"), std::string::npos) << local.err;
  const Json skipped = Json::parse(pull({"style-local", "--json"}).out);
  EXPECT_EQ(skipped["adapter"]["status"], "skipped");
  EXPECT_EQ(skipped["adapter"]["reason"], "no_public_source");
  EXPECT_TRUE(hub_.requests().empty());
  EXPECT_EQ(files(), 0);
  EXPECT_EQ(pull({"style-restricted", "--accept-license"}).status, 0);
}

TEST_F(Adapter, PullTriesAgainAndGivesUp) {
  int failures = 2;
  hub_.on_request([&](const FakeRequest& request) {
    return request.store && failures-- > 0 ? FakeFault{.status = 503} : FakeFault{};
  });
  const ProgramResult result = pull({"style-test"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("attempt 2 failed"), std::string::npos) << result.err;
  hub_.on_request([](const FakeRequest&) { return FakeFault{.status = 404}; });
  const ProgramResult gone = pull({"style-test", "--force", "--json"});
  EXPECT_EQ(gone.status, 1);
  EXPECT_EQ(Json::parse(gone.out)["error"]["code"], "server_refused");
  EXPECT_EQ(files(), 1);
}

TEST_F(Adapter, PullStoppedLeavesNothing) {
  hub_.on_request([](const FakeRequest& request) {
    return request.store ? FakeFault{.bytes_per_s = 5000} : FakeFault{};
  });
  bool sent = false;
  const ProgramResult stopped = pull(
      {"style-test"},
      [&](pid_t pid, const std::string& err) {
        if (!sent && err.find("[style-test]") != std::string::npos) {
          sent = true;
          ::kill(pid, SIGINT);
        }
      },
      60);
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_EQ(stopped.out, "");
  EXPECT_EQ(files(), 0);
}

TEST_F(Adapter, ListShowsWhatIsThere) {
  ASSERT_EQ(pull({"style-test"}).status, 0);
  const ProgramResult list = run({"adapter", "list"});
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_EQ(list.out,
            "ID                BASE           INSTALLED  VERIFIED\n"
            "style-test        image-fixture  yes        yes\n"
            "style-restricted  image-fixture  no         -\n"
            "style-local       -              no         -\n");
  const Json json = Json::parse(run({"adapter", "list", "--json"}).out);
  ASSERT_EQ(json["adapters"].size(), 3);
  const Json& first = json["adapters"][0];
  EXPECT_EQ(first["id"], "style-test");
  EXPECT_EQ(first["base"], "image-fixture");
  EXPECT_EQ(first["installed"], true);
  EXPECT_EQ(first["verified"], true);
  EXPECT_EQ(first["path"], place().string());
  EXPECT_EQ(json["adapters"][2]["base"], nullptr);
}

TEST_F(Adapter, GenerateTakesAnId) {
  const ProgramResult absent = draw("style-test");
  EXPECT_EQ(absent.status, 64);
  EXPECT_NE(absent.err.find("mere.run adapter pull style-test"), std::string::npos) << absent.err;
  ASSERT_EQ(pull({"style-test"}).status, 0);
  const ProgramResult by_id = draw("style-test=0.5");
  EXPECT_EQ(by_id.status, 0) << by_id.err;
  const Json lora = Json::parse(by_id.out)["loras"][0];
  EXPECT_EQ(lora["path"], place().string());
  EXPECT_EQ(lora["scale"], 0.5);
  EXPECT_GT(lora["applied"], 0);
  // A file of that name wins.
  program_.write("style-test", "no adapter");
  EXPECT_NE(draw("style-test").status, 0);
}

}  // namespace
}  // namespace mere
