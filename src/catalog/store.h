// The store of installed models: what is there, whether it is whole, how much it takes, and how it
// is taken away again. Printing is the command line's.
//
//   const StorePlaces places = store_places({});
//   for (const StoredModel& model : list_models(places, Measure::kNo)) ...
//
// An installed model is a folder <models>/<id> of links into the payload store (hub_store.h) and a
// manifest that lists the files. Folders that the user put there by hand count as well; only
// explicit commands remove them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "catalog/hub_store.h"
#include "catalog/model_check.h"
#include "catalog/store_places.h"
#include "core/progress.h"

namespace mere {

struct StoredModel {
  std::string id;  // what --model takes
  fs::path path;
  ModelPlace place = ModelPlace::kStore;
  std::string family;    // empty when the folder does not tell
  std::string category;  // of the catalog, else recognised, else empty
  ModelCheck check;
  std::optional<int64_t> bytes;  // what its files hold; shared payloads count in full
  std::string manifest_id;       // as its manifest names it; often the id
};

enum class Measure { kNo, kYes };

// Every model, in the order of places. Sizes come from manifests that list files; otherwise, and
// with kYes, from a walk through the folder.
std::vector<StoredModel> list_models(const StorePlaces& places, Measure measure);

// By path, id or upstream repository, in that order; nullopt when there is none.
std::optional<StoredModel> find_model(const std::string& id_or_path, const StorePlaces& places,
                                      Measure measure);

// ---- Verify -------------------------------------------------------------------------------------

struct VerifyProblem {
  std::string file;  // relative to the model
  std::string problem;
};

struct VerifyResult {
  std::string id;
  fs::path path;
  // "verified"; "failed"; "unhashed": whole by sizes and headers, but nothing tells its hashes.
  std::string status;
  int64_t files = 0;
  int64_t bytes = 0;
  std::vector<VerifyProblem> problems;
};

// Called after every few MiB: the file concerned, and bytes of the whole model.
using VerifyReport = std::function<void(const std::string& file, int64_t done, int64_t total)>;

// Hashes every file that the manifest lists. Cancellation is looked at every few MiB. Throws only
// Cancelled.
VerifyResult verify_model(const StoredModel& model, const Progress& progress,
                          const VerifyReport& report = {});

// ---- Space --------------------------------------------------------------------------------------

struct ModelStorage {
  std::string id;
  int64_t bytes = 0;            // of its files
  int64_t exclusive_bytes = 0;  // of files that no other model has: what removing it gives back
};

struct StorageReport {
  fs::path models_dir;
  fs::path hub;
  std::vector<ModelStorage> models;
  int64_t model_bytes = 0;         // of all models, files that several have once
  int64_t payload_bytes = 0;       // in the hub
  int64_t partial_bytes = 0;       // parts of downloads
  int64_t unreferenced_bytes = 0;  // payloads that no model has
  int64_t total_bytes = 0;         // models and hub, everything once
};

StorageReport measure_storage(const StorePlaces& places, const fs::path& hub);

// ---- Removing -----------------------------------------------------------------------------------

struct RemoveOptions {
  bool force = false;       // also a folder that holds files of its own
  bool keep_cache = false;  // leave the payloads
};

struct RemoveResult {
  std::string id;
  bool was_installed = false;
  int64_t reclaimed_bytes = 0;
  int64_t kept_bytes = 0;  // payloads that stay: other models have them, or they were to be kept
  int64_t partial_files = 0;
  std::vector<std::string> kept_for;  // ids that share payloads
};

// Removes a model of the store: its folder, payloads that no other model has, and parts of its
// downloads. Waits for a pull that runs. UsageError when there is nothing of that id, when it is in
// a read-only place, or when it holds files of its own and `force` is not set.
RemoveResult remove_model(const std::string& id, const StorePlaces& places, const fs::path& hub,
                          const RemoveOptions& options);

struct GcItem {
  std::string kind;  // "snapshot", "blob", "part", "installing"
  fs::path path;
  int64_t bytes = 0;
};

struct GcResult {
  std::vector<GcItem> items;
  int64_t bytes = 0;
  int64_t young = 0;    // unreferenced, but changed within the last hour: left alone
  bool shared = false;  // the hub is other programs' too: only parts and leftovers are looked at
  bool removed = false;
};

// What no model refers to. `force`: removed too; without it nothing is changed.
GcResult collect_garbage(const StorePlaces& places, const fs::path& hub, bool force);

// ---- Manifests ----------------------------------------------------------------------------------

struct RepairItem {
  std::string id;
  fs::path path;
  // "written", "would_write", "present", "unrecognised", "failed"
  std::string action;
  std::string family;
  std::string problem;
};

// Writes a manifest into every folder of the store that has none and is recognised.
std::vector<RepairItem> repair_manifests(const StorePlaces& places, bool dry_run);

}  // namespace mere
