// A model on disk: its folder, its manifest (mererun_model.json, schema 3), and how one is found.
//
//   const ModelRoot model = resolve_image_model("image-klein-nano", default_models_dir());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catalog/catalog.h"
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

// A file that a pull installed, as its manifest lists it.
struct InstalledFile {
  std::string path;  // relative to the model's folder
  int64_t bytes = 0;
  std::string hash;  // SHA-256, or the SHA-1 of a git blob: by its length
  int source = 0;    // index in `sources`
};

// Where a part of an installed model came from.
struct InstalledSource {
  std::string role;
  std::string repository;
  std::string revision;
  std::string destination;  // folder below the root; empty: the root itself
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

  // What a pull wrote; all empty in a folder that was made by hand.
  std::vector<InstalledFile> files;
  std::vector<InstalledSource> sources;
  std::vector<UsageTerms> terms;  // accepted
};

// Reads `folder`/mererun_model.json; without one the model is recognised from its own files
// (catalog/recognise.h) and its id is the folder's name. UsageError when it is neither or of a kind
// this program cannot use, IoError naming file and field when a file is damaged.
ModelRoot open_model_root(const fs::path& folder);

// `requested` is an existing path (which wins), an id in the store or in a location of the user's
// (catalog/store_places.h), the upstream repository of a catalog id, the embedded model's id, or
// empty: then the first installed image model of a family in `families`, else the embedded one.
// `models_dir` empty: the default store with the user's locations; else that folder alone.
// UsageError when the model is not installed, IoError when a file that its pull installed is not
// there whole.
ModelRoot resolve_image_model(const std::string& requested, const fs::path& models_dir,
                              const std::vector<std::string>& families);

inline constexpr const char* kEmbeddedModelId = "image-emoji-nano";

// Folder of the model that ships with the program; nullopt when it is not beside the executable.
std::optional<fs::path> embedded_model_dir();

// Identifies the weights of a model: SHA-256 over the line "<sha256 of file>  <component>/<file>\n"
// of every *.safetensors of its components, sorted by that name (the files beside the manifest when
// no component folder holds any). Hashes of files are remembered by size, times and inode in
// model-digests.json of the user's cache folder. Cancellation is looked at between files.
std::string model_digest(const ModelRoot& root, const Progress* progress = nullptr);

}  // namespace mere
