// The user's settings: <app-support>/config.json, and what they and the environment come to.
//
//   const std::optional<HubToken> token = hub_token(progress);
//   const HubEndpoint endpoint = hub_endpoint(progress);
//   set_config_value("hf-token", value, progress);
//
// The environment wins over the file. A variable that is blank counts as not set. Values are
// trimmed, and setting a blank one removes it.
//
// The file holds a secret: it is written with mode 0600 under a temporary name and renamed, and
// changes are made under a lock, so two programs that set two keys both get theirs. A file that is
// no JSON object of texts is not thrown away: it is moved to config.json.broken-<unix time>, which
// a warning names, and counts as empty.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"
#include "core/progress.h"

namespace mere {

inline constexpr std::string_view kDefaultHubEndpoint = "https://huggingface.co";

struct ConfigKey {
  std::string_view name;          // on the command line: "hf-token"
  std::string_view field;         // in the file: "hf_token"
  std::string_view variables[2];  // of the environment, the first that is set wins
  bool secret;
};

const std::vector<ConfigKey>& config_keys();
// UsageError naming the valid keys when there is none of that name.
const ConfigKey& find_config_key(std::string_view name);

fs::path config_path();

// The stored values by name; those that are not set are missing. Warns when the file was broken.
std::map<std::string, std::string> stored_config(Progress& progress);

// Stores `value`, trimmed; a blank one, or nullopt, removes the key. What else the file holds is
// kept. Returns what is stored now. UsageError when the key is unknown or the value cannot be used.
std::optional<std::string> set_config_value(std::string_view key,
                                            const std::optional<std::string>& value,
                                            Progress& progress);

// What may be shown of a secret: up to 8 characters as that many bullets (at least 4), of more the
// first and the last 4.
std::string masked(std::string_view secret);

// The variable that overrides the stored value of `key` at the moment; empty: none.
std::string overriding_variable(const ConfigKey& key);

struct HubToken {
  std::string value;   // a secret: never in a message, a log or an argument
  std::string source;  // "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN" or "config file"
};

struct HubEndpoint {
  std::string url;     // without a slash at the end
  std::string source;  // "HF_ENDPOINT", "config file" or "default"
};

// UsageError naming the source when the value cannot be used: a token with characters that would
// break out of a header; an endpoint that is no plain address, or is http to another machine.
std::optional<HubToken> hub_token(Progress& progress);
HubEndpoint hub_endpoint(Progress& progress);

// `url` checked and without slashes at its end; `source` is what errors name.
std::string checked_endpoint(std::string_view url, const std::string& source);
std::string checked_token(std::string_view token, const std::string& source);

}  // namespace mere
