// What an image family gives to the engine. A family is one folder beside this file; the engine
// knows it only through this interface and one line in engine/families.cpp.
//
// Order of a run: describe() answers everything a request is checked against, from config files
// alone; load() maps weights; generate() makes one picture per seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/model_root.h"
#include "core/progress.h"
#include "media/image.h"

namespace mere {

struct ImageSize {
  int64_t width = 0;   // pixels
  int64_t height = 0;  // pixels
  bool operator==(const ImageSize&) const = default;
};

// The sizes a model draws. One rule for the command line, the server, plans and training.
struct SizeRule {
  std::vector<ImageSize> only;  // when not empty, exactly these; the numbers below are not used
  int64_t multiple = 16;        // each side is a multiple of this, pixels
  int64_t min_side = 64;        // pixels
  int64_t max_side = 8192;      // pixels
};

bool is_legal_size(const SizeRule& rule, ImageSize size);
// Up to two legal sizes nearest to `size` (by sum of side differences), nearest first.
std::vector<ImageSize> nearest_legal_sizes(const SizeRule& rule, ImageSize size);

enum class OptionUse { kUsed, kIgnored, kRefused };

// What the memory of one picture depends on.
struct ImageExtent {
  ImageSize size;
  int references = 0;
  bool guided = false;  // two passes a step
  int text_tokens = 512;
};

// A model's answers before any weight is read.
struct ImageModelInfo {
  SizeRule sizes;
  ImageSize default_size{1024, 1024};
  int default_steps = 4;
  float default_guidance = 1.0F;
  int default_max_sequence_length = 512;
  std::optional<float> default_sigma_shift;
  bool guidance_has_effect = false;  // false: distilled, CFG and negative prompt are not used
  OptionUse references = OptionUse::kRefused;  // --input, --ref-image, --strength
  int max_references = 0;                      // further ones are dropped with a warning
  // The picture as the model will see it (scaled, cropped); UsageError naming `name` when it cannot
  // be a reference. Empty: taken as it is.
  std::function<Image(const Image& image, const std::string& name)> prepare_reference;
  OptionUse lora = OptionUse::kRefused;
  int max_loras = 0;
  OptionUse sigmas = OptionUse::kRefused;
  OptionUse sigma_shift = OptionUse::kRefused;
  // Bytes of memory one picture needs beyond the mapped weights.
  std::function<int64_t(const ImageExtent& picture)> activation_bytes;
  int64_t weight_bytes = 0;  // of all components on disk
};

struct LoraRequest {
  std::string path;
  float scale = 1.0F;
};

// A checked request: every value is final.
struct ImageJob {
  std::string prompt;
  std::string negative_prompt;
  ImageSize size;
  int steps = 4;
  float guidance = 1.0F;
  std::vector<uint64_t> seeds;  // one picture each
  int max_sequence_length = 512;
  std::vector<float> sigmas;  // descending, without the final 0; empty: the model's schedule
  std::optional<float> sigma_shift;
  std::vector<Image> references;  // prepared by the family
  // 0 or 1: start from pure noise. Between: start from the first reference, noised to the
  // schedule's point at 1 - strength, so that lower keeps more of it.
  float strength = 0.0F;
  std::vector<LoraRequest> loras;
  int64_t memory_limit_bytes = 0;  // for choices between speed and memory; 0: available memory
};

// The extent of every picture of a job.
ImageExtent extent_of(const ImageJob& job, bool guided);

struct LoraReport {
  std::string path;
  float scale = 1.0F;
  int64_t applied = 0;  // modules changed
  int64_t total = 0;    // modules the file holds
  std::vector<std::string> unmatched;
};

struct StageTiming {
  std::string stage;
  double seconds = 0;
};

struct GeneratedImage {
  Image pixels;  // RGB
  uint64_t seed = 0;
};

struct ImageRun {
  std::vector<StageTiming> timings;  // load, text_encoder, denoise, ... in the order they ran
  std::vector<LoraReport> loras;
  std::string cfg_mode;     // "none", "serial", "batched"
  std::string decode_mode;  // "whole", "tiled"
};

// Called with each finished picture, in the order of the seeds.
using ImageSink = std::function<void(GeneratedImage image)>;

// One tensor of a golden case, values widened to double.
struct CaseTensor {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
using CaseTensors = std::map<std::string, CaseTensor>;

// A golden case file as handed to a family (format: docs/validation.md).
struct GoldenCase {
  fs::path file;
  fs::path root;  // folder that holds cases/; model paths are relative to it
  std::optional<fs::path> model_override;  // --model
};

// What one comparison gave.
struct TensorCheck {
  std::string name;
  double max_abs = 0;  // largest absolute error
  double rel_l2 = 0;   // L2 norm of the error over that of the expected values
  bool passed = false;
  bool judged = true;     // false: only shown, neither passed nor failed
  std::string problem{};  // why not, when it is not a matter of numbers
};

struct CaseCheck {
  std::string file{};  // name of the case file
  std::string kind{};  // stage: "transformer", "vae", "pipeline", ...
  bool passed = false;
  bool judged = true;     // false: nothing failed, but nothing that decides was compared
  std::string problem{};  // an error that ended the case
  std::vector<TensorCheck> tensors{};
};

// Passes when |actual - expected| <= tolerance + tolerance * |expected| everywhere.
TensorCheck compare_tensors(const std::string& name, const CaseTensor& actual,
                            const CaseTensor& expected, double tolerance);

class ImageModel {
 public:
  virtual ~ImageModel() = default;
  virtual ImageRun generate(const ImageJob& job, Progress& progress, const ImageSink& sink) = 0;
};

class ImageFamily {
 public:
  virtual ~ImageFamily() = default;
  virtual std::string_view name() const = 0;
  // Checks configs and file presence only. UsageError when the root is not a model of this family.
  virtual ImageModelInfo describe(const ModelRoot& root) const = 0;
  // Maps and checks weights. IoError names the file and tensor that is wrong.
  virtual std::unique_ptr<ImageModel> load(const ModelRoot& root, Progress& progress) const = 0;
  // The stage of case file `file` ("vae", "tokenizer", ...); empty when it is not a case of this
  // family. IoError when the file is damaged.
  virtual std::string case_kind(const fs::path& file) const = 0;
  // Runs the stage on the inputs in the file and compares every tensor that is not an input; a
  // tensor the family does not know fails the case.
  virtual CaseCheck run_case(const GoldenCase& golden, Progress& progress) const = 0;
  // Deterministic checks on an installed model, without expected values: `test` is vae, encoder,
  // transformer or pipeline.
  virtual CaseCheck self_check(const ModelRoot& root, std::string_view test,
                               Progress& progress) const = 0;
};

}  // namespace mere
