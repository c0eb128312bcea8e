// What a folder holds when no manifest says it: told from model_index.json, from the config.json of
// its transformer, or, in mflux's layout, which has neither, from names and shapes of its tensors.
// Names of files and folders beyond those of the layouts count for nothing.
#pragma once

#include <optional>
#include <string>

#include "catalog/catalog.h"
#include "core/files.h"

namespace mere {

struct RecognisedModel {
  std::string family;  // "klein", "zimage", ...; empty: a pipeline that nobody here knows
  std::string engine;
  std::string category;    // "image", "text", ...
  std::string layout;      // "diffusers", "mflux", "transformers", "checkpoint"
  std::string class_name;  // of the pipeline, when a file states it
  std::string variant;     // "distilled", "base"; empty: nothing tells
};

// nullopt when `folder` is no model that this program knows of. IoError when a file that would tell
// is damaged. Reads config files, and of weights at most the headers of the transformer.
std::optional<RecognisedModel> recognise_model(const fs::path& folder);

// How the transformer's weights are stored, from their headers.
struct RecognisedWeights {
  std::string precision;  // "bf16", "int4", ...; "unknown"
  std::optional<CatalogQuantization> quantization;
};
RecognisedWeights recognise_weights(const fs::path& folder);

// Folder of a component in the published layouts: `name`, or where that is not there the name that
// packed MLX checkpoints give it ("transformer-packed-mflux", "text_encoder-mlx-4bit"). It need not
// exist.
fs::path component_folder(const fs::path& root, const std::string& name);

}  // namespace mere
