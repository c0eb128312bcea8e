#include "core/config.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "temporary_home.h"

#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

class WarningProgress : public SilentProgress {
 public:
  void warn(std::string_view text) override { warnings.emplace_back(text); }
  std::vector<std::string> warnings;
};

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"}) {
      home.set(name, std::nullopt);
    }
  }

  void write(const std::string& text) {
    fs::create_directories(config_path().parent_path());
    write_file_atomic(config_path(), text);
  }
  static std::string file() { return read_file(config_path(), 1 << 20); }
  void set(const char* key, const char* value) { set_config_value(key, value, progress); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(config_path().parent_path())) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  template <typename Action>
  static ErrorInfo usage_error(const Action& action) {
    try {
      action();
    } catch (const UsageError& e) {
      return e.info();
    }
    ADD_FAILURE() << "no error";
    return {};
  }

  TemporaryHome home;
  WarningProgress progress;
};

TEST_F(ConfigTest, WritesTheFileOfTheSpecification) {
  EXPECT_EQ(config_path(), home.path() / "data/MereRun/config.json");
  set("hf-token", "  hf_abc \n");
  set("hf-endpoint", "https://mirror.example/hf/");
  EXPECT_EQ(file(),
            "{\n  \"hf_endpoint\": \"https://mirror.example/hf\",\n"
            "  \"hf_token\": \"hf_abc\"\n}\n");
  EXPECT_EQ(fs::status(config_path()).permissions(), static_cast<fs::perms>(0600));
  const auto stored = stored_config(progress);
  EXPECT_EQ(stored.at("hf-token"), "hf_abc");
  EXPECT_EQ(stored.at("hf-endpoint"), "https://mirror.example/hf");
  EXPECT_EQ(names(), (std::vector<std::string>{"config.json", "config.json.lock"}));
}

TEST_F(ConfigTest, ABlankValueUnsetsAndTheKeyGoes) {
  set("hf-token", "hf_abc");
  EXPECT_EQ(set_config_value("hf-token", " \t\n", progress), std::nullopt);
  EXPECT_EQ(file(), "{}\n");
  set("hf-token", "hf_abc");
  EXPECT_EQ(set_config_value("hf-token", std::nullopt, progress), std::nullopt);
  EXPECT_EQ(file(), "{}\n");
  EXPECT_TRUE(stored_config(progress).empty());
}

TEST_F(ConfigTest, KeepsWhatItDoesNotKnow) {
  write(R"({"z": [1, {"a": "/"}], "hf_token": "old", "hf_endpoint": null})");
  set("hf-token", "new");
  EXPECT_EQ(Json::parse(file()),
            Json::parse(R"({"z": [1, {"a": "/"}], "hf_token": "new", "hf_endpoint": null})"));
  EXPECT_TRUE(progress.warnings.empty());
}

TEST_F(ConfigTest, UnknownKeysNameTheValidOnes) {
  const ErrorInfo info = usage_error([&] { set("hf_token", "x"); });
  EXPECT_EQ(info.code, "config_key_unknown");
  EXPECT_EQ(info.hint, "keys: hf-token, hf-endpoint");
}

TEST_F(ConfigTest, AFileThatOthersCouldReadBecomesPrivate) {
  write("{}");
  ASSERT_EQ(::chmod(config_path().c_str(), 0644), 0);
  const mode_t old = ::umask(0);
  set("hf-token", "hf_abc");
  ::umask(old);
  EXPECT_EQ(fs::status(config_path()).permissions(), static_cast<fs::perms>(0600));
}

// A watcher looks at every file of the folder while the file is written again and again.
TEST_F(ConfigTest, OthersCanReadTheTokenAtNoInstant) {
  write("{}");
  ASSERT_EQ(::chmod(config_path().c_str(), 0644), 0);
  const mode_t old = ::umask(0);
  set("hf-token", "hf_0");
  std::atomic<bool> done = false;
  std::atomic<int> open_to_others = 0;
  std::thread watcher([&] {
    while (!done) {
      std::error_code ec;
      for (fs::directory_iterator it(config_path().parent_path(), ec);
           !ec && it != fs::directory_iterator(); it.increment(ec)) {
        struct stat st {};
        if (::stat(it->path().c_str(), &st) == 0 && (st.st_mode & 077) != 0) ++open_to_others;
      }
    }
  });
  for (int i = 0; i < 100; ++i) set("hf-token", ("hf_" + std::to_string(i)).c_str());
  done = true;
  watcher.join();
  ::umask(old);
  EXPECT_EQ(open_to_others, 0);
}

TEST_F(ConfigTest, MissingAndEmptyFilesAreEmpty) {
  EXPECT_TRUE(stored_config(progress).empty());
  EXPECT_FALSE(fs::exists(config_path().parent_path()));
  for (const char* text : {"", " \n", "{}"}) {
    write(text);
    EXPECT_TRUE(stored_config(progress).empty());
  }
  EXPECT_TRUE(progress.warnings.empty());
  EXPECT_EQ(names(), std::vector<std::string>{"config.json"});
}

TEST_F(ConfigTest, ABrokenFileIsMovedAsideAndToldOnce) {
  const std::vector<std::string> broken = {
      R"({"hf_token": "hf_sec)", R"(["hf_secret"])",
      R"({"hf_token": 5})",      R"({"hf_token": "hf_secret", "hf_token": "b"})",
      std::string("{}\0x", 4),   "hf_secret"};
  for (const std::string& text : broken) {
    progress.warnings.clear();
    write(text);
    EXPECT_TRUE(stored_config(progress).empty());
    ASSERT_EQ(progress.warnings.size(), 1U) << text;
    EXPECT_EQ(progress.warnings[0].find("hf_sec"), std::string::npos) << progress.warnings[0];
    const size_t at = progress.warnings[0].find(config_path().string() + ".broken-");
    ASSERT_NE(at, std::string::npos) << progress.warnings[0];
    const fs::path aside = progress.warnings[0].substr(at);
    EXPECT_EQ(read_file(aside, 1 << 20), text);
    EXPECT_EQ(fs::status(aside).permissions(), static_cast<fs::perms>(0600));
    EXPECT_TRUE(stored_config(progress).empty());
    EXPECT_EQ(progress.warnings.size(), 1U);
  }
  // Each kept under a name of its own, though they broke within a second.
  EXPECT_EQ(names().size(), broken.size() + 1);
}

TEST_F(ConfigTest, SettingAKeyKeepsABrokenFileToo) {
  write("{broken");
  set("hf-token", "hf_abc");
  EXPECT_EQ(progress.warnings.size(), 1U);
  EXPECT_EQ(names().size(), 3U);
  EXPECT_EQ(stored_config(progress).at("hf-token"), "hf_abc");
}

TEST_F(ConfigTest, AFileThatIsTooLargeIsBroken) {
  write("{\"x\": \"" + std::string(2 << 20, 'x') + "\"}");
  EXPECT_TRUE(stored_config(progress).empty());
  EXPECT_EQ(progress.warnings.size(), 1U);
}

TEST_F(ConfigTest, WhatIsNoFileIsAnError) {
  fs::create_directories(config_path());
  EXPECT_THROW(stored_config(progress), IoError);
  EXPECT_THROW(set("hf-token", "x"), IoError);
}

TEST_F(ConfigTest, MasksSecrets) {
  const std::string bullet = "\u2022";
  const auto bullets = [&](int n) {
    std::string out;
    while (n-- > 0) out += bullet;
    return out;
  };
  EXPECT_EQ(masked(""), bullets(4));
  EXPECT_EQ(masked("ab"), bullets(4));
  EXPECT_EQ(masked("abcde"), bullets(5));
  EXPECT_EQ(masked("abcdefgh"), bullets(8));
  EXPECT_EQ(masked("abcdefghi"), "abcd\u2026fghi");
  EXPECT_EQ(masked("hf_0123456789"), "hf_0\u20266789");
  EXPECT_EQ(masked("\u00e4bcdefgh\u00f6"), "\u00e4bcd\u2026fgh\u00f6");
}

TEST_F(ConfigTest, TheEnvironmentWinsAndSourcesAreNamed) {
  EXPECT_FALSE(hub_token(progress));
  set("hf-token", "hf_stored");
  EXPECT_EQ(hub_token(progress)->source, "config file");
  home.set("HUGGING_FACE_HUB_TOKEN", " hf_second ");
  EXPECT_EQ(hub_token(progress)->value, "hf_second");
  EXPECT_EQ(hub_token(progress)->source, "HUGGING_FACE_HUB_TOKEN");
  home.set("HF_TOKEN", "hf_first");
  EXPECT_EQ(hub_token(progress)->value, "hf_first");
  EXPECT_EQ(hub_token(progress)->source, "HF_TOKEN");
  home.set("HF_TOKEN", " \t");
  home.set("HUGGING_FACE_HUB_TOKEN", "");
  EXPECT_EQ(hub_token(progress)->value, "hf_stored");
  EXPECT_EQ(overriding_variable(find_config_key("hf-token")), "");
}

TEST_F(ConfigTest, EndpointsComeFromTheEnvironmentTheFileOrTheDefault) {
  EXPECT_EQ(hub_endpoint(progress).url, "https://huggingface.co");
  EXPECT_EQ(hub_endpoint(progress).source, "default");
  set("hf-endpoint", "https://stored.example/");
  EXPECT_EQ(hub_endpoint(progress).url, "https://stored.example");
  EXPECT_EQ(hub_endpoint(progress).source, "config file");
  home.set("HF_ENDPOINT", "http://localhost:8080");
  EXPECT_EQ(hub_endpoint(progress).url, "http://localhost:8080");
  EXPECT_EQ(hub_endpoint(progress).source, "HF_ENDPOINT");
  home.set("HF_ENDPOINT", "  ");
  EXPECT_EQ(hub_endpoint(progress).source, "config file");
}

// A line break in a token would add headers to every request.
TEST_F(ConfigTest, TokensThatBreakOutOfAHeaderAreRefused) {
  for (const char* token :
       {"hf_a\r\nHost: x", "hf_a\nb", "hf a", "hf_\x01", "hf_\x7f", "hf_\u00e4"}) {
    home.set("HF_TOKEN", token);
    const ErrorInfo info = usage_error([&] { hub_token(progress); });
    EXPECT_EQ(info.code, "token_invalid");
    EXPECT_EQ(info.field, "HF_TOKEN");
    EXPECT_EQ(info.message.find("hf"), std::string::npos) << info.message;
    EXPECT_EQ(usage_error([&] { set("hf-token", token); }).field, "hf-token");
  }
  home.set("HF_TOKEN", std::nullopt);
  EXPECT_THROW(set("hf-token", std::string(5000, 'x').c_str()), UsageError);
  write(R"({"hf_token": "a\u000ab"})");
  EXPECT_NE(usage_error([&] { hub_token(progress); }).message.find("config file"),
            std::string::npos);
}

TEST_F(ConfigTest, EndpointsThatAreTaken) {
  const auto url = [](const char* text) { return checked_endpoint(text, "HF_ENDPOINT"); };
  EXPECT_EQ(url("https://huggingface.co"), "https://huggingface.co");
  EXPECT_EQ(url("HTTPS://a.b//"), "https://a.b");
  EXPECT_EQ(url(" https://a.b:8443/hub/ "), "https://a.b:8443/hub");
  EXPECT_EQ(url("https://[2001:db8::1]:443/x"), "https://[2001:db8::1]:443/x");
  for (const char* loopback : {"http://127.0.0.1:80", "http://127.8.9.10", "http://[::1]:8080",
                               "http://localhost", "http://LocalHost:1"}) {
    EXPECT_EQ(url(loopback), loopback);
  }
}

TEST_F(ConfigTest, EndpointsThatAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"huggingface.co", "endpoint_invalid"},
      {"ftp://a.b", "endpoint_invalid"},
      {"https://", "endpoint_invalid"},
      {"https:///x", "endpoint_invalid"},
      {"https://user:s3cret@a.b", "endpoint_invalid"},
      {"https://a.b@c.d", "endpoint_invalid"},
      {"https://a.b?x=1", "endpoint_invalid"},
      {"https://a.b/#x", "endpoint_invalid"},
      {"https://a.b/../c", "endpoint_invalid"},
      {"https://a.b/..", "endpoint_invalid"},
      {"https://a b", "endpoint_invalid"},
      {"https://a.b\\c", "endpoint_invalid"},
      {"https://a.b\r\nx", "endpoint_invalid"},
      {"https://a.b:0", "endpoint_invalid"},
      {"https://a.b:65536", "endpoint_invalid"},
      {"https://a.b:8x", "endpoint_invalid"},
      {"https://a.b:", "endpoint_invalid"},
      {"https://[::1", "endpoint_invalid"},
      {"https://[::1]x", "endpoint_invalid"},
      {"https://[a.b]", "endpoint_invalid"},
      {"https://-a.b", "endpoint_invalid"},
      {"https://a%2eb", "endpoint_invalid"},
      {"http://a.b", "endpoint_insecure"},
      {"http://127.1", "endpoint_insecure"},
      {"http://127.0.0.1.evil.example", "endpoint_insecure"},
      {"http://localhost.evil.example", "endpoint_insecure"},
      {"http://[2001:db8::1]", "endpoint_insecure"},
      {"http://10.0.0.1", "endpoint_insecure"},
      {"http://0.0.0.0", "endpoint_insecure"},
  };
  for (const auto& [text, code] : cases) {
    const char* given = text;
    home.set("HF_ENDPOINT", given);
    const ErrorInfo info = usage_error([&] { hub_endpoint(progress); });
    EXPECT_EQ(info.code, code) << text;
    EXPECT_EQ(info.field, "HF_ENDPOINT");
    EXPECT_TRUE(info.message.starts_with("HF_ENDPOINT ")) << info.message;
    EXPECT_EQ(info.message.find("s3cret"), std::string::npos);
  }
  home.set("HF_ENDPOINT", std::nullopt);
  EXPECT_EQ(usage_error([&] { set("hf-endpoint", "http://a.b"); }).code, "endpoint_insecure");
  EXPECT_FALSE(fs::exists(config_path()));
}

// Two programs set two keys at the same time: neither loses the other's.
TEST_F(ConfigTest, TwoWritersDoNotLoseAKey) {
  const pid_t child = ::fork();
  const char* key = child == 0 ? "hf-token" : "hf-endpoint";
  for (int i = 0; i < 30; ++i) {
    const std::string last = std::to_string(i);
    set(key, ((child == 0 ? "hf_" : "https://host-") + last).c_str());
    const auto stored = stored_config(progress);
    const auto it = stored.find(key);
    const bool there = it != stored.end() && it->second.ends_with(last);
    if (child == 0 && !there) ::_exit(1);
    EXPECT_TRUE(there);
  }
  if (child == 0) ::_exit(0);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Json::parse(file()),
            Json::parse(R"({"hf_token": "hf_29", "hf_endpoint": "https://host-29"})"));
}

TEST_F(ConfigTest, WhatKilledWritersLeftIsRemoved) {
  set("hf-token", "hf_abc");
  write_file_atomic(config_path().parent_path() / ".config.json.aB3dE5", "hf_secret");
  set("hf-token", "hf_abc");
  EXPECT_EQ(names(), (std::vector<std::string>{"config.json", "config.json.lock"}));
}

}  // namespace
}  // namespace mere
