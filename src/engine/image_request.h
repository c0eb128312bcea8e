// Picture generation as the doors see it: a request as it was asked, a result as it came out.
// The command line, the server and plans all build an ImageRequest and call generate_images().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "families/image_family.h"

namespace mere {

// Absent fields take the model's defaults. Field names are those of docs/cli.md.
struct ImageRequest {
  std::string prompt;
  std::optional<std::string> negative_prompt;
  std::optional<double> cfg_scale;
  std::optional<double> sigma_shift;
  std::vector<double> sigmas;
  std::string output;  // absolute after resolve; the default name when empty
  std::optional<int64_t> width;   // pixels
  std::optional<int64_t> height;  // pixels
  std::optional<int64_t> steps;
  std::optional<uint64_t> seed;   // absent: random
  int64_t count = 1;              // pictures with seeds seed, seed + 1, ...
  std::string model;              // id, path, or empty for the default
  std::optional<std::string> input;
  std::vector<std::string> ref_images;
  bool keep_original_aspect = false;
  std::optional<double> strength;
  std::optional<int64_t> max_sequence_length;
  std::vector<LoraRequest> loras;  // scale already multiplied with --lora-scale
  bool metadata = true;
  std::optional<int64_t> memory_limit_bytes;
  fs::path models_dir;
};

struct ImageOutput {
  fs::path path;  // absolute
  uint64_t seed = 0;
};

struct ImageResult {
  std::vector<ImageOutput> outputs;
  std::string model_id;
  fs::path model_path;
  std::string model_digest;
  std::string family;
  ImageSize size;
  int steps = 0;
  float guidance = 1.0F;
  int max_sequence_length = 0;
  float strength = 0.0F;
  std::string cfg_mode;
  std::vector<LoraReport> loras;
  std::vector<StageTiming> timings;
  double total_seconds = 0;
  int64_t peak_memory_bytes = 0;  // largest resident size of the process
  std::vector<std::string> warnings;
};

// A request checked against its model: nothing is read from weights yet, nothing is written.
struct ResolvedImageRequest {
  ModelRoot model;
  const ImageFamily* family = nullptr;
  ImageModelInfo info;
  ImageJob job;
  std::vector<fs::path> outputs;  // one per seed
  bool metadata = true;
  std::vector<std::string> warnings;  // already given to the Progress
};

// Fills defaults, checks every option against the model (sizes, memory, options the family cannot
// use), and reads the input pictures. Throws UsageError or ResourceError; warnings go to `progress`.
ResolvedImageRequest resolve_image_request(const ImageRequest& request, Progress& progress);

// resolve_image_request, load, generate, write every picture.
ImageResult generate_images(const ImageRequest& request, Progress& progress);

}  // namespace mere
