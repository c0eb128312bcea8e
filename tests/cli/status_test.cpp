#include <chrono>
#include <gtest/gtest.h>

#include "fake_server.h"
#include "program.h"

#include "cli/server_probe.h"
#include "core/error.h"
#include "engine/admission_ledger.h"

namespace mere {
namespace {

using cli::probe_server;
using cli::ServerProbe;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string ok(const std::string& body) { return "HTTP/1.1 200 OK\r\nX: y\r\n\r\n" + body; }

// A server as mere.run's own, with a key when `key` is not empty.
FakeServer::Answer our_server(const std::string& key = "") {
  return [key](const std::string& request) -> std::string {
    if (request.starts_with("GET /health ")) return ok("{}");
    if (!key.empty() && !contains(request, "\r\nAuthorization: Bearer " + key + "\r\n")) {
      return "HTTP/1.1 401 Unauthorized\r\n\r\n{}";
    }
    if (request.starts_with("GET /v1/models ")) {
      return ok(R"({"object":"list","data":[{"id":"b"},{"id":"a\u001b"},{"id":5},7]})");
    }
    return ok(R"({"admission":{"activeRequests":1,"queuedRequests":2},
                  "models":[{"id":"b","loaded":true},{"id":"a","loaded":false}]})");
  };
}

ServerProbe probe(const FakeServer& server, const std::string& key = "") {
  return probe_server({.port = server.port(), .api_key = key, .timeout_seconds = 10});
}

TEST(ServerProbe, ReadsAServer) {
  FakeServer server(our_server());
  const ServerProbe found = probe(server);
  EXPECT_EQ(found.url, "http://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_TRUE(found.up);
  EXPECT_EQ(found.detail, "");
  EXPECT_EQ(found.loaded_models, std::vector<std::string>{"b"});
  ASSERT_TRUE(found.runtime);
  EXPECT_EQ(found.runtime->at("admission").at("queuedRequests"), 2);
  for (const std::string& request : server.requests()) {
    EXPECT_TRUE(contains(request, "\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n"));
    EXPECT_FALSE(contains(request, "Authorization"));
  }
}

TEST(ServerProbe, WithoutARuntimeStatusTheListOfModelsCounts) {
  const FakeServer server([](const std::string& request) -> std::string {
    if (contains(request, "/runtime/")) return "HTTP/1.1 404 Not Found\r\n\r\n";
    return our_server()(request);
  });
  const ServerProbe found = probe(server);
  EXPECT_EQ(found.loaded_models, (std::vector<std::string>{"b", "a?"}));
  EXPECT_EQ(found.runtime_detail, "HTTP 404");
}

TEST(ServerProbe, AServerWithAKey) {
  const FakeServer server(our_server("s3cret"));
  ServerProbe found = probe(server);
  EXPECT_TRUE(found.up);
  EXPECT_EQ(found.models_detail, "requires API key");
  EXPECT_EQ(found.runtime_detail, "requires API key");
  EXPECT_TRUE(found.loaded_models.empty());
  found = probe(server, "s3cret");
  EXPECT_EQ(found.loaded_models, std::vector<std::string>{"b"});
}

TEST(ServerProbe, NobodyListens) {
  int port = 0;
  { port = FakeServer(our_server()).port(); }
  const ServerProbe found = probe_server({.port = port});
  EXPECT_FALSE(found.up);
  EXPECT_FALSE(found.detail.empty());
}

TEST(ServerProbe, SilenceEndsInTime) {
  const FakeServer server([](const std::string&) { return std::string(); });
  const auto start = std::chrono::steady_clock::now();
  const ServerProbe found = probe_server({.port = server.port(), .timeout_seconds = 0});
  EXPECT_FALSE(found.up);
  EXPECT_EQ(found.detail, "no answer in time");
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, std::chrono::milliseconds(95));
  EXPECT_LT(took, std::chrono::seconds(20));
}

TEST(ServerProbe, AnswersThatAreNone) {
  const std::pair<std::string, const char*> answers[] = {
      {"SSH-2.0-OpenSSH\r\n", "the answer is not HTTP"},
      {"HTTP/1.1 200 OK\r\n", "the answer is not HTTP"},
      {"HTTP/1. \r\n\r\n", "the answer is not HTTP"},
      {"HTTP/1.1\r\n\r\n", "the answer is not HTTP"},
      {"HTTP/1.1 2\r\n\r\n", "the answer is not HTTP"},
      {"HTTP/2 200\r\n\r\n", "the answer is not HTTP"},
      {"HTTP/1.1 500 Oops\r\n\r\n", "HTTP 500"},
      {"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\n\r\n", "HTTP 302"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       "the answer is in pieces, as HTTP/1.0 has none"},
      {ok(std::string(2 << 20, 'x')), "the answer is too large"},
  };
  for (const auto& [text, problem] : answers) {
    const std::string& answer = text;
    const FakeServer server([&](const std::string&) { return answer; });
    const ServerProbe found = probe(server);
    EXPECT_FALSE(found.up);
    EXPECT_EQ(found.detail, problem);
  }
}

TEST(ServerProbe, BodiesThatAreNoJson) {
  for (const char* body : {"", "[]", "{", "{\"models\":5}", "{\"models\":[1,null]}"}) {
    const FakeServer server([&](const std::string&) { return ok(body); });
    const ServerProbe found = probe(server);
    EXPECT_TRUE(found.up);
    EXPECT_TRUE(found.loaded_models.empty());
    EXPECT_EQ(found.runtime.has_value(), body[0] == '{' && body[1] == '"') << body;
  }
}

TEST(ServerProbe, AddressesAndKeysAreChecked) {
  for (const char* host : {"", "a b", "a/b", "a\r\nX: y", "-x", "a@b", "a?b"}) {
    EXPECT_THROW(probe_server({.host = host}), UsageError) << host;
  }
  for (const int64_t port : {0, -1, 65536}) {
    EXPECT_THROW(probe_server({.port = port}), UsageError);
  }
  for (const char* key : {"a b", "a\r\nX: y", "a\n"}) {
    EXPECT_THROW(probe_server({.api_key = key}), UsageError);
  }
  for (const char* host : {"::1", "[::1]"}) {
    EXPECT_EQ(probe_server({.host = host, .port = 1}).url, "http://[::1]:1");
  }
}

// ---- The command --------------------------------------------------------------------------------

// A port that nobody listens on.
const std::vector<std::string> kNoServer = {"status", "--port", "1"};

TEST(Status, SucceedsWithoutAServerAndCreatesNothing) {
  const Program program;
  const ProgramResult result = program.run(kNoServer);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(result.out.starts_with("mere.run ")) << result.out;
  for (const char* line : {"\n  server: http://127.0.0.1:1 down (", "\n  model store: ",
                           "\n  installed models: 1\n    image-emoji-nano  image  ",
                           "\n  jobs: 0 of ", "\n  memory: ", "\n  disk: "}) {
    EXPECT_TRUE(contains(result.out, line)) << line << result.out;
  }
  EXPECT_FALSE(fs::exists(program.models().parent_path()));
}

TEST(Status, Json) {
  const Program program;
  const FakeServer server(our_server());
  const ProgramResult result =
      program.run({"status", "--port", std::to_string(server.port()), "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = parse_json(result.out, "stdout");
  EXPECT_EQ(json.at("server").at("health"), "up");
  EXPECT_EQ(json.at("server").at("loadedModels"), Json::array({"b"}));
  EXPECT_EQ(json.at("server").at("runtime").at("admission").at("activeRequests"), 1);
  EXPECT_FALSE(json.at("server").contains("detail"));
  EXPECT_EQ(json.at("modelStore").at("path"), program.models().string());
  EXPECT_EQ(json.at("modelStore").at("source"), "default");
  EXPECT_EQ(json.at("installedModels").at(0).at("id"), "image-emoji-nano");
  const Json& admission = json.at("admission");
  EXPECT_GE(admission.at("capacityPermits"), 1);
  EXPECT_EQ(admission.at("activePermits"), 0);
  EXPECT_EQ(admission.at("active"), Json::array());
  EXPECT_EQ(admission.at("queued"), Json::array());
  EXPECT_GE(admission.at("minimumDiskBytes"), int64_t{8} << 30);
  // Sorted keys.
  EXPECT_EQ(result.out, json.dump(2) + "\n");
}

TEST(Status, SaysWhereModelsComeFrom) {
  const Program program;
  fs::create_directories(program.folder() / "models/broken");
  fs::create_directory_symlink(std::string(MERE_MODELS) + "/image-emoji-nano",
                               program.folder() / "models/mine");
  std::vector<std::string> words = kNoServer;
  words.insert(words.end(), {"--json", "--models-root", "models"});
  Json json = parse_json(program.run(words).out, "stdout");
  EXPECT_EQ(json.at("modelStore").at("source"), "processOverride");
  EXPECT_EQ(json.at("installedModels").size(), 2U);
  EXPECT_EQ(json.at("installedModels").at(1).at("id"), "mine");
  EXPECT_EQ(json.at("installedModels").at(0).at("size"),
            json.at("installedModels").at(1).at("size"));
  words.resize(4);
  const ProgramSetup setup{
      .variables = {"MERERUN_MODELS_DIR=" + (program.folder() / "models").string()}};
  json = parse_json(program.run(words, {}, setup).out, "stdout");
  EXPECT_EQ(json.at("modelStore").at("source"), "environment");
}

TEST(Status, ADamagedQueueIsToldAndStays) {
  const Program program;
  const fs::path state = program.models().parent_path() / "admission/state.json";
  write_file_atomic(state, "{broken");
  std::vector<std::string> words = kNoServer;
  const ProgramResult text = program.run(words);
  EXPECT_EQ(text.status, 0);
  EXPECT_TRUE(contains(text.out, "  jobs: unknown (")) << text.out;
  words.emplace_back("--json");
  const Json json = parse_json(program.run(words).out, "stdout");
  EXPECT_FALSE(json.contains("admission"));
  EXPECT_TRUE(contains(json.at("admissionDetail"), "remove the file"));
  EXPECT_EQ(read_file(state, 100), "{broken");
}

TEST(Status, WrongOptionsAreUsageErrors) {
  const Program program;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"status", "--port", "70000"},
                                             {"status", "--port", "x"},
                                             {"status", "--host", "a b"},
                                             {"status", "--timeout-seconds", "-1"},
                                             {"status", "--api-key", "s3cret key"},
                                             {"status", "stray"}}) {
    const ProgramResult result = program.run(words);
    EXPECT_EQ(result.status, 64);
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(contains(result.err, "s3cret")) << result.err;
  }
}

}  // namespace
}  // namespace mere
