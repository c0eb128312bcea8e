#include "core/config.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cstdlib>
#include <ctime>

#include "core/error.h"
#include "core/file_lock.h"
#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr size_t kMaxValueBytes = 4096;
constexpr std::string_view kFileSource = "config file";

// ---- Text ---------------------------------------------------------------------------------------

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// ---- Values -------------------------------------------------------------------------------------

// Characters of UTF-8 text.
size_t characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

[[noreturn]] void refuse(const char* code, const std::string& source, const std::string& why,
                         const std::string& hint = "") {
  throw UsageError{{code, source, source + " " + why, hint}};
}

bool is_loopback(const std::string& host, bool bracketed) {
  in6_addr six{};
  in_addr four{};
  if (bracketed)
    return ::inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
  if (lower(host) == "localhost") return true;
  return ::inet_pton(AF_INET, host.c_str(), &four) == 1 && (ntohl(four.s_addr) >> 24) == 127;
}

bool is_host(const std::string& host, bool bracketed) {
  in6_addr six{};
  if (bracketed) return ::inet_pton(AF_INET6, host.c_str(), &six) == 1;
  return !host.empty() && host.front() != '-' && host.front() != '.' &&
         std::ranges::all_of(host, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
         });
}

bool is_port(std::string_view port) {
  return !port.empty() && port.size() <= 5 &&
         std::ranges::all_of(port, [](unsigned char c) { return std::isdigit(c) != 0; }) &&
         std::stoi(std::string(port)) >= 1 && std::stoi(std::string(port)) <= 65535;
}

std::string checked_value(const ConfigKey& key, std::string_view value, const std::string& source) {
  return key.secret ? checked_token(value, source) : checked_endpoint(value, source);
}

// ---- The file -----------------------------------------------------------------------------------

FileLock lock_config() { return FileLock::acquire(config_path().string() + ".lock"); }

// The file's object, empty when it is missing or blank; nullopt with `problem` when it is broken.
std::optional<Json> read_config(std::string& problem) {
  const fs::path path = config_path();
  std::error_code ec;
  if (!fs::exists(path, ec) && !ec) return Json::object();
  if (fs::is_regular_file(path, ec) && fs::file_size(path, ec) > kMaxConfigBytes) {
    problem = "is larger than " + std::to_string(kMaxConfigBytes) + " bytes";
    return std::nullopt;
  }
  const std::string text = read_file(path, kMaxConfigBytes);
  if (trimmed(text).empty()) return Json::object();
  try {
    Json json = parse_json(text, path.string());
    if (!json.is_object()) {
      problem = "is not a JSON object";
      return std::nullopt;
    }
    for (const ConfigKey& key : config_keys()) {
      const auto it = json.find(key.field);
      if (it == json.end() || it->is_null() || it->is_string()) continue;
      problem = "\"" + std::string(key.field) + "\" is not text";
      return std::nullopt;
    }
    return json;
  } catch (const IoError&) {
    // The parser's message repeats a piece of the file, which may be a piece of the secret.
    problem = "is not valid JSON";
    return std::nullopt;
  }
}

// The name the broken file gets: one that is free, for the last broken file may be of this second.
fs::path broken_name(const fs::path& path) {
  const std::string stem = path.string() + ".broken-" + std::to_string(std::time(nullptr));
  fs::path name = stem;
  std::error_code ec;
  for (int i = 2; fs::exists(fs::symlink_status(name, ec)) && i < 1000; ++i) {
    name = stem + "-" + std::to_string(i);
  }
  return name;
}

// The file's object; a broken file is moved aside, or IoError, so that it is never written over.
// The lock is held.
Json take_config(Progress& progress) {
  std::string problem;
  if (std::optional<Json> json = read_config(problem)) return *std::move(json);
  const fs::path path = config_path();
  const fs::path aside = broken_name(path);
  std::error_code ec;
  fs::rename(path, aside, ec);
  if (ec) {
    throw IoError{{"config_broken", path.string(),
                   path.string() + " " + problem + " and cannot be moved aside: " + ec.message(),
                   "move it away yourself"}};
  }
  // It may hold a token.
  if (!fs::is_symlink(aside, ec)) {
    fs::permissions(aside, fs::perms::owner_read | fs::perms::owner_write, ec);
  }
  progress.warn(path.string() + " " + problem + "; it counts as empty and was moved to " +
                aside.string());
  return Json::object();
}

// For readers: the lock is taken only to move a broken file aside, so that reading works in a
// folder that cannot be written.
Json load_config(Progress& progress) {
  std::string problem;
  if (std::optional<Json> json = read_config(problem)) return *std::move(json);
  try {
    const FileLock lock = lock_config();
    return take_config(progress);
  } catch (const IoError&) {
    progress.warn(config_path().string() + " " + problem + "; it counts as empty");
    return Json::object();
  }
}

std::string stored_value(const Json& json, const ConfigKey& key) {
  const auto it = json.find(key.field);
  return it == json.end() || !it->is_string() ? "" : trimmed(it->get<std::string>());
}

struct Found {
  std::string value;
  std::string source;
};

// The value of a key that is not blank, environment first.
std::optional<Found> find_value(const ConfigKey& key, Progress& progress) {
  if (std::string variable = overriding_variable(key); !variable.empty()) {
    return Found{trimmed(std::getenv(variable.c_str())), std::move(variable)};
  }
  std::string value = stored_value(load_config(progress), key);
  if (value.empty()) return std::nullopt;
  return Found{std::move(value), std::string(kFileSource)};
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = {
      {"hf-token", "hf_token", {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}, true},
      {"hf-endpoint", "hf_endpoint", {"HF_ENDPOINT", ""}, false},
  };
  return keys;
}

const ConfigKey& find_config_key(std::string_view name) {
  std::string known;
  for (const ConfigKey& key : config_keys()) {
    if (key.name == name) return key;
    known += (known.empty() ? "" : ", ") + std::string(key.name);
  }
  // The word is not repeated: it may be a token whose key was left out.
  throw UsageError{{"config_key_unknown", "KEY", "there is no such key", "keys: " + known}};
}

fs::path config_path() { return app_support_dir() / "config.json"; }

std::map<std::string, std::string> stored_config(Progress& progress) {
  const Json json = load_config(progress);
  std::map<std::string, std::string> values;
  for (const ConfigKey& key : config_keys()) {
    if (std::string value = stored_value(json, key); !value.empty()) {
      values.emplace(key.name, std::move(value));
    }
  }
  return values;
}

std::optional<std::string> set_config_value(std::string_view name,
                                            const std::optional<std::string>& given,
                                            Progress& progress) {
  const ConfigKey& key = find_config_key(name);
  std::string value = given ? trimmed(*given) : "";
  if (!value.empty()) value = checked_value(key, value, std::string(key.name));
  const FileLock lock = lock_config();
  remove_abandoned_writes(config_path());
  Json json = take_config(progress);
  if (value.empty()) {
    json.erase(std::string(key.field));
  } else {
    json[std::string(key.field)] = value;
  }
  write_private_file_atomic(config_path(),
                            json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return value.empty() ? std::nullopt : std::optional(value);
}

std::string masked(std::string_view secret) {
  const size_t length = characters(secret);
  if (length <= 8) {
    std::string bullets;
    for (size_t i = 0; i < std::max<size_t>(4, length); ++i) bullets += "\u2022";
    return bullets;
  }
  // Cut between characters, not inside one.
  const auto is_start = [&](size_t i) {
    return i >= secret.size() || (static_cast<unsigned char>(secret[i]) & 0xC0) != 0x80;
  };
  size_t head = 0;
  for (int n = 0; n < 4; ++n) {
    do ++head;
    while (!is_start(head));
  }
  size_t tail = secret.size();
  for (int n = 0; n < 4; ++n) {
    do --tail;
    while (!is_start(tail));
  }
  return std::string(secret.substr(0, head)) + "\u2026" + std::string(secret.substr(tail));
}

std::string overriding_variable(const ConfigKey& key) {
  for (const std::string_view name : key.variables) {
    if (name.empty()) continue;
    const char* value = std::getenv(std::string(name).c_str());
    if (value != nullptr && !trimmed(value).empty()) return std::string(name);
  }
  return "";
}

// A token goes into a header as it is: a line break in it would add headers of its own.
std::string checked_token(std::string_view token, const std::string& source) {
  const bool clean =
      std::ranges::all_of(token, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
  if (!clean) {
    refuse("token_invalid", source, "holds characters that no token has",
           "copy the token again, without spaces or line breaks");
  }
  if (token.size() > kMaxValueBytes) refuse("token_invalid", source, "is too long for a token");
  return std::string(token);
}

std::string checked_endpoint(std::string_view given, const std::string& source) {
  const std::string url = trimmed(given);
  const char* code = "endpoint_invalid";
  const std::string hint = "an address such as " + std::string(kDefaultHubEndpoint);
  // The address is not repeated in any message: it may hold a password or a token.
  if (url.size() > kMaxValueBytes) refuse(code, source, "is too long for an address");
  if (!std::ranges::all_of(url,
                           [](unsigned char c) { return c > 0x20 && c < 0x7F && c != '\\'; })) {
    refuse(code, source, "holds characters that no address has", hint);
  }
  const std::string scheme = lower(url.substr(0, url.find("://")));
  if (url.find("://") == std::string::npos || (scheme != "https" && scheme != "http")) {
    refuse(code, source, "does not begin with https:// or http://", hint);
  }
  if (url.find_first_of("?#") != std::string::npos) {
    refuse(code, source, "holds a query, which an endpoint cannot have", hint);
  }
  const std::string rest = url.substr(scheme.size() + 3);
  const std::string authority = rest.substr(0, rest.find('/'));
  if (authority.find('@') != std::string::npos) {
    refuse(code, source, "holds a user name or password, which would be sent along",
           "leave out what stands before the @; a token goes into hf-token");
  }
  const bool bracketed = authority.starts_with('[');
  const size_t host_end = bracketed ? authority.find(']') : authority.find(':');
  const std::string host = authority.substr(
      bracketed ? 1 : 0, host_end == std::string::npos ? host_end : host_end - (bracketed ? 1 : 0));
  const std::string port =
      host_end == std::string::npos ? "" : authority.substr(host_end + (bracketed ? 1 : 0));
  const bool port_fits = port.empty() || (port[0] == ':' && is_port(port.substr(1)));
  if ((bracketed && host_end == std::string::npos) || !is_host(host, bracketed) || !port_fits) {
    refuse(code, source, "does not name a host and port", hint);
  }
  std::string path = rest.substr(std::min(authority.size(), rest.size()));
  if ((path + "/").find("/../") != std::string::npos) {
    refuse(code, source, "holds \"..\"", hint);
  }
  if (scheme == "http" && !is_loopback(host, bracketed)) {
    refuse("endpoint_insecure", source,
           "is http to another machine: a token and models would cross the network unprotected",
           "use https, or a mirror on this machine (localhost)");
  }
  while (path.ends_with('/')) path.pop_back();
  return scheme + "://" + authority + path;
}

std::optional<HubToken> hub_token(Progress& progress) {
  std::optional<Found> found = find_value(find_config_key("hf-token"), progress);
  if (!found) return std::nullopt;
  const std::string source =
      found->source == kFileSource ? "hf-token in the config file" : found->source;
  return HubToken{checked_token(found->value, source), std::move(found->source)};
}

HubEndpoint hub_endpoint(Progress& progress) {
  const std::optional<Found> found = find_value(find_config_key("hf-endpoint"), progress);
  if (!found) return {std::string(kDefaultHubEndpoint), "default"};
  const std::string source =
      found->source == kFileSource ? "hf-endpoint in the config file" : found->source;
  return {checked_endpoint(found->value, source), found->source};
}

}  // namespace mere
