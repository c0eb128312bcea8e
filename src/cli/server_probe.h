// Asks a running `mere.run api serve` how it is. For `status`: short, bounded, and never an error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace mere::cli {

struct ProbeRequest {
  std::string host = "127.0.0.1";  // name or address, IPv6 with or without brackets
  int64_t port = 8080;
  std::string api_key{};         // a secret; empty: none
  double timeout_seconds = 1.0;  // for each of up to three requests
};

struct ServerProbe {
  std::string url;
  bool up = false;     // it answers /health
  std::string detail;  // why not; empty when it does
  std::vector<std::string> loaded_models;
  std::string models_detail;    // why they are not known; empty when they are
  std::optional<Json> runtime;  // the server's /runtime/status
  std::string runtime_detail;
};

// UsageError when host, port or key cannot be used; whatever the network does is in the result. No
// proxy is asked and no redirect followed: the key goes to the host that was named and nowhere
// else.
ServerProbe probe_server(const ProbeRequest& request);

}  // namespace mere::cli
