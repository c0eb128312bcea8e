// mererun_model.json, schema 3: reading it, and writing one for a folder that has none.
#pragma once

#include <optional>
#include <string>

#include "catalog/model_root.h"
#include "catalog/recognise.h"

namespace mere {

inline constexpr const char* kManifestName = "mererun_model.json";
inline constexpr size_t kMaxManifestBytes = size_t{1} << 20;

// Fills `model` (whose path is set) from the manifest at `path`. UsageError when it is of a kind
// that this program cannot use, IoError naming file and field when it is damaged.
void read_manifest(const fs::path& path, ModelRoot& model);

// The text of a manifest for the folder `root` that was recognised as `model`: pretty, keys sorted.
std::string manifest_of(const fs::path& root, const std::string& id, const RecognisedModel& model,
                        const RecognisedWeights& weights);

// "2026-07-02T12:00:00Z"
std::string iso_time_now();

}  // namespace mere
