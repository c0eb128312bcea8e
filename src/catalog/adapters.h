// Adapters that the catalog knows: pulled whole and checked, and usable by id wherever a path is.
//
// They live in <app support>/adapters/<id>/<version>/.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/catalog_file.h"
#include "core/error.h"
#include "core/files.h"
#include "core/progress.h"

namespace mere {

// Fetches `url` and hands over its bytes as they come. Throws TransientError where another attempt
// may help (network, 5xx), any other Error where it will not. What `sink` throws ends the transfer
// and passes through.
using FetchSink = std::function<void(std::string_view bytes)>;
using Fetch = std::function<void(const std::string& url, const FetchSink& sink)>;

struct TransientError : IoError {
  using IoError::IoError;
};

// Over HTTPS (plaintext from this machine alone), without a token: an adapter is public. A network
// error, "too many requests" and a server's own failure are TransientError. `progress`, which must
// outlive the result, ends the transfer with Cancelled when it is cancelled.
Fetch http_fetch(const Progress& progress);

struct AdapterState {
  CatalogAdapter adapter;
  fs::path path;           // where it is, or would be
  bool installed = false;  // a file is there
  bool verified = false;   // of the right size and SHA-256
};

fs::path adapters_dir();
// By id, trimmed, case does not matter; nullptr when there is none.
const CatalogAdapter* find_catalog_adapter(std::string_view id);
AdapterState adapter_state(const CatalogAdapter& adapter);
std::vector<AdapterState> list_adapters();

// The file that `path_or_id` means: an existing file wins, then an installed adapter of that id.
// UsageError naming `field` when it is neither; one that can be pulled says how.
fs::path resolve_adapter(const std::string& path_or_id, const char* field);

struct AdapterPullOptions {
  bool force = false;           // replace what is there and wrong, and fetch again what is right
  bool accept_license = false;  // of adapters that need it
  std::chrono::milliseconds retry_delay{250};  // times the attempt
};

struct AdapterPullResult {
  fs::path path;
  bool was_there = false;  // already whole: nothing was fetched
};

// Fetches an adapter that has a source. The file appears under its name only once it is whole: of
// exactly the size and SHA-256 of the catalog. UsageError when its licence is not accepted, or when
// something else is there and `force` is not set; IoError when three attempts failed. `done` is
// told bytes so far of the attempt.
AdapterPullResult pull_adapter(const CatalogAdapter& adapter, const AdapterPullOptions& options,
                               const Fetch& fetch, Progress& progress,
                               const std::function<void(int64_t bytes)>& done = {});

}  // namespace mere
