// Is a model on disk whole? By sizes and headers, without hashing: store_verify.h hashes.
#pragma once

#include <string>
#include <string_view>

#include "catalog/model_root.h"

namespace mere {

enum class ModelState {
  kComplete,
  kIncomplete,  // a file is missing, or not of its size
  kDamaged,     // a file says something that cannot be, or the folder is no model
};
std::string_view state_name(ModelState state);

struct ModelCheck {
  ModelState state = ModelState::kComplete;
  std::string file;     // the first file that is wrong, relative to the model; may be empty
  std::string problem;  // one line; empty when complete
};

// Judged by the `files` of the manifest where a pull wrote them; else by the components of
// model_index.json, by the shards of every index, and by the headers of the weights. Throws nothing
// for whatever the folder holds.
ModelCheck check_model(const fs::path& folder);

// The files of `model`'s manifest alone: IoError `model_incomplete` naming the first one that is
// not there whole. A model without that list passes.
void check_installed_files(const ModelRoot& model);

// The file `path` of `model`'s folder. Folders on the way may not lead out of the model; the file
// itself may be a link, into the store of payloads. IoError otherwise.
fs::path installed_file(const ModelRoot& model, const std::string& path);

}  // namespace mere
