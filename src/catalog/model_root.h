// A model on disk: its folder, its manifest (mererun_model.json, schema 3), and how one is found.
//
//   const ModelRoot model = resolve_image_model("image-klein-nano", default_models_dir());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/progress.h"

namespace mere {

struct ModelSize {
  int64_t width = 0;
  int64_t height = 0;
};

// The keys of mererun_model.json that a run uses. Absent keys stay empty.
struct Manifest {
  std::string id;
  std::string family;   // "klein", "zimage", ...
  std::string variant;  // "distilled", "base", "standard"
  std::string tier;
  std::string precision;
  std::optional<int64_t> steps;
  std::optional<double> cfg;
  std::optional<double> sigma_shift;
  std::optional<int64_t> width;
  std::optional<int64_t> height;
  std::optional<int64_t> max_sequence_length;
  std::optional<std::vector<int64_t>> text_encoder_out_layers;
  std::vector<ModelSize> sizes;       // when not empty, the model draws only these
  std::vector<std::string> supports;  // "txt2img", "reference_edit", "lora_inference", ...
  bool supports_stated = false;       // false: the manifest is silent or absent
};

struct ModelRoot {
  fs::path path;
  Manifest manifest;
  // Why this model was taken when none was asked for; empty when it was asked for.
  std::string chosen_because;

  // Folder of a component ("transformer", "vae", "text_encoder", "tokenizer", "scheduler") by the
  // manifest's component table, else the folder of that name. It need not exist.
  fs::path component(const std::string& name) const;
  // name -> path relative to the root (checked to stay inside it), or absolute when the manifest
  // says "absolute".
  std::vector<std::pair<std::string, std::string>> component_paths;
};

// Reads `folder`/mererun_model.json; without one the model is recognised from model_index.json
// (a local diffusers folder) and its id is the folder's name. UsageError when it is neither or of a
// kind this program cannot use, IoError naming file and field when a file is damaged.
ModelRoot open_model_root(const fs::path& folder);

// `requested` is an existing path (which wins), an id under `models_dir`, the embedded model's id,
// or empty: then the first installed image model of a family in `families`, else the embedded one.
// UsageError when the model is not installed.
ModelRoot resolve_image_model(const std::string& requested, const fs::path& models_dir,
                              const std::vector<std::string>& families);

// Folder of the model that ships with the program; nullopt when it is not beside the executable.
std::optional<fs::path> embedded_model_dir();

// Identifies the weights of a model: SHA-256 over the line "<sha256 of file>  <component>/<file>\n"
// of every *.safetensors of its components, sorted by that name (the files beside the manifest when
// no component folder holds any). Hashes of files are remembered by size, times and inode in
// model-digests.json of the user's cache folder. Cancellation is looked at between files.
std::string model_digest(const ModelRoot& root, const Progress* progress = nullptr);

}  // namespace mere
