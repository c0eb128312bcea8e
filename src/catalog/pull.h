// Getting a model of the catalog onto this machine.
//
//   PullRequest request{.models_dir = default_models_dir(), .hub_dir = hub_cache_dir(),
//                       .access = hub_access(progress)};
//   const auto pulled = pull_model(*find_catalog_model("image-klein-nano"), request, observer);
//
// plan_pull() answers what a pull would do: gates that need no network come first, then the commits
// and files of every source, what is here already, and the room on the disks. pull_model() does it:
// fetches what is missing into the hub cache, builds the folder of links under a hidden name, and
// renames it, so that a model is there whole or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "catalog/catalog.h"
#include "catalog/transfer.h"
#include "core/files.h"

namespace mere {

struct PullRequest {
  fs::path models_dir;
  fs::path hub_dir;
  HubAccess access{};
  bool force = false;              // hash everything again, fetch what is wrong, install anew
  bool allow_unsupported = false;  // skip the gate on memory
  bool accept_license = false;
  TransferOptions transfer{};
  // The machine, for tests.
  int64_t physical_memory_bytes = 0;                                   // 0: this machine's
  std::function<std::optional<int64_t>(const fs::path&)> free_disk{};  // empty: free_disk_bytes()
};

// Why a pull cannot start.
struct PullBlocker {
  std::string code;  // "license_not_accepted", "model_unsupported", "disk_space", ...
  std::string message;
  std::string hint;
};

struct PlannedFile {
  size_t source = 0;  // index in the model's sources
  HubFile file{};
  std::string install_path{};  // below the install root
  bool present = false;        // a blob of that size is there
  int64_t part_bytes = 0;      // of it, left by a broken download
};

struct PullPlan {
  const CatalogModel* model = nullptr;
  fs::path destination{};              // the install root
  bool installed = false;              // whole already: nothing else was looked at
  bool listed = false;                 // the hub was asked: what follows is known
  std::vector<std::string> commits{};  // of each source
  std::vector<PlannedFile> files{};
  int64_t total_bytes = 0;
  int64_t fetch_bytes = 0;      // that are not here yet
  int64_t disk_need_bytes = 0;  // on the volume of the hub cache, with the reserve
  int64_t disk_free_bytes = 0;
  std::vector<PullBlocker> blockers{};
  std::vector<std::string> warnings{};
};

// Gates that need no network: no public source, licence, memory, token. Empty: none holds it back.
std::vector<PullBlocker> local_blockers(const CatalogModel& model, const PullRequest& request);

// Reads; writes nothing. With local blockers or an installed model the hub is not asked.
PullPlan plan_pull(const CatalogModel& model, const PullRequest& request,
                   TransferObserver& observer);

struct PulledModel {
  std::string id;
  fs::path path;
  bool already_there = false;
  int64_t files = 0;
  int64_t total_bytes = 0;
  int64_t fetched_bytes = 0;
  std::vector<std::string> commits{};
};

// `model` and its companions, companions first; the last entry is the model itself. Throws the
// first blocker as UsageError or ResourceError before anything is fetched.
std::vector<PulledModel> pull_model(const CatalogModel& model, const PullRequest& request,
                                    TransferObserver& observer);

// True when <models>/<id> is an install of which every file of its manifest is there with its size.
bool is_installed_whole(const fs::path& folder, const std::string& id);

// IoError when `folder` holds files that no pull put there: an install holds links and its
// manifest, anything else is somebody's work and not this program's to replace.
void check_replaceable(const fs::path& folder);

// Builds <models>/<id> from blobs that are there, replacing an older install in one step, and
// checks that it opens as a model. `sha256`: by blob name.
void install_model(const PullPlan& plan, const PullRequest& request,
                   const std::map<std::string, std::string>& sha256);

// A blocker as the error that a command ends with.
[[noreturn]] void throw_blocker(const std::string& id, const PullBlocker& blocker);

}  // namespace mere
