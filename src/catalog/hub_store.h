// The payload store (hub_cache.h) as a whole: what lies in it, and taking things out again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/files.h"

namespace mere {

// True for the cache that other programs keep their models in (HF_HUB_CACHE, HF_HOME/hub,
// ~/.cache/huggingface/hub): nothing there is removed as unused, for only they know.
bool is_shared_hub(const fs::path& hub);

struct StoredBlob {
  fs::path path;
  int64_t bytes = 0;       // on its own
  double age_seconds = 0;  // since it was last changed
};

struct HubSnapshot {
  fs::path path;
  double age_seconds = 0;
  std::vector<fs::path> blobs;  // that its links lead to
};

struct StoredRepository {
  fs::path path;
  std::vector<StoredBlob> blobs;
  std::vector<StoredBlob> parts;  // not whole
  std::vector<HubSnapshot> snapshots;
};

// Every repository of `hub`, sorted. Links are not followed out of a repository; what cannot be
// read is left out.
std::vector<StoredRepository> scan_hub(const fs::path& hub);

// Removes files, then the folders above them that are left empty, up to and without `hub`. IoError
// when a file cannot be removed.
void remove_hub_file(const fs::path& hub, const fs::path& file);

// Removes a snapshot, its links and the refs that name it.
void remove_hub_snapshot(const fs::path& hub, const HubSnapshot& snapshot);

}  // namespace mere
