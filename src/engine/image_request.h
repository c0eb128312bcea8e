// Picture generation as the doors see it: a request as it was asked, a result as it came out.
// The command line, the server and plans all build an ImageRequest and call generate_images().
//
//   ImageRequest request;
//   request.prompt = "a red apple";
//   request.output = "apple.png";
//   const ImageResult result = generate_images(request, progress);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "families/image_family.h"
#include "kernels/precision.h"

namespace mere {

// Largest strength of an adapter, either sign, --lora-scale included.
inline constexpr double kMaxLoraScale = 100;

// Absent fields take the model's defaults. Field names are those of docs/cli.md.
struct ImageRequest {
  std::string prompt;
  std::optional<std::string> negative_prompt;
  std::optional<double> cfg_scale;
  std::optional<double> sigma_shift;
  std::vector<double> sigmas;
  // ./mererun-image-<unix time>.png when empty; ".png" is added to a name without extension; with
  // count > 1 each name gets "-<seed>" before its extension. An existing file is replaced.
  std::string output;
  std::optional<int64_t> width;   // pixels
  std::optional<int64_t> height;  // pixels
  std::optional<int64_t> steps;
  std::optional<uint64_t> seed;  // absent: random
  int64_t count = 1;             // pictures with seeds seed, seed + 1, ...
  std::string model;             // id, path, or empty for the default
  std::optional<std::string> input;
  std::vector<std::string> ref_images;
  bool keep_original_aspect = false;
  std::optional<double> strength;
  std::optional<int64_t> max_sequence_length;
  std::vector<LoraRequest> loras;  // scale already multiplied with --lora-scale
  bool metadata = true;
  std::optional<int64_t> memory_limit_bytes;
  Precision precision = Precision::kAuto;
  fs::path models_dir{};  // empty: the default store and the user's locations
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
  std::string decode_mode;
  std::string compute_type;  // of the largest products: "float32", "bfloat16", "int16"
  std::vector<LoraReport> loras;
  std::vector<StageTiming> timings;
  double first_step_seconds = 0;  // from the call to the start of the first denoising step
  double total_seconds = 0;
  int64_t peak_memory_bytes = 0;      // largest resident size of the process
  std::vector<std::string> warnings;  // of resolve_image_request
};

// A request checked against its model: nothing is read from weights yet, nothing is written.
struct ResolvedImageRequest {
  ModelRoot model;
  const ImageFamily* family = nullptr;
  ImageModelInfo info;
  ImageJob job;
  std::vector<fs::path> outputs;  // one per seed
  bool metadata = true;
  Precision precision = Precision::kAuto;
  std::optional<int64_t> memory_limit_bytes;  // as asked
  std::vector<std::string> warnings;          // already given to the Progress
};

// Fills defaults, checks every option against the model (sizes, the machine's memory, options the
// family cannot use), and reads the input pictures. Throws UsageError (codes: size_unsupported,
// option_unsupported, value_out_of_range, model_not_installed, file_not_found, output_..., ...),
// ResourceError (code: memory) or what reading a picture throws; warnings go to `progress`.
ResolvedImageRequest resolve_image_request(const ImageRequest& request, Progress& progress);

// Memory the pictures of the job need, weights included, in bytes; nullopt where the family does
// not say.
std::optional<int64_t> estimated_memory_bytes(const ResolvedImageRequest& request);

// ResourceError (code: memory), with a size that would fit, when the job needs more than the
// machine has free or --memory-limit allows. resolve_image_request() asks only whether it could
// ever fit: what other jobs hold now they give back.
void check_free_memory(const ResolvedImageRequest& request);

// The text entries stored in one picture unless metadata is off: "parameters", the one-line form
// that picture tools read, and "mere.run", a JSON object with everything that makes the picture
// again. `lora_sha256` has one hash per adapter of the job. Adapters are named without their
// folder.
ImageText picture_text(const ResolvedImageRequest& request, const GeneratedImage& image,
                       const std::string& model_digest,
                       const std::vector<std::string>& lora_sha256);

// resolve_image_request, wait for a place among the machine's jobs (engine/admission.h), load,
// generate, write every picture. When it fails or is cancelled, the
// picture in progress leaves no file; those already finished stay, and a warning says so.
// `on_output` is called after each picture is on disk.
using OutputSink = std::function<void(const ImageOutput& output)>;
ImageResult generate_images(const ImageRequest& request, Progress& progress,
                            const OutputSink& on_output = {});

}  // namespace mere
