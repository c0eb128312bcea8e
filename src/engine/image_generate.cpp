#include <algorithm>
#include <charconv>
#include <chrono>

#include "catalog/catalog.h"
#include "core/error.h"
#include "core/json.h"
#include "core/system.h"
#include "engine/admission.h"
#include "engine/image_request.h"

namespace mere {
namespace {

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Shortest text that reads back as the same float: 0.75, not 0.75000000000000001.
std::string shortest(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

// Values of the one-line form are separated by commas and hold colons; such values are quoted.
std::string quoted_if_needed(const std::string& value) {
  if (value.find_first_of(",:\n\"") == std::string::npos) return value;
  return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string parameters_text(const ResolvedImageRequest& request, const GeneratedImage& image,
                            const std::string& digest) {
  const ImageJob& job = request.job;
  std::string text = job.prompt + "\n";
  if (!job.negative_prompt.empty()) text += "Negative prompt: " + job.negative_prompt + "\n";
  text += "Steps: " + std::to_string(job.steps) + ", CFG scale: " + shortest(job.guidance) +
          ", Seed: " + std::to_string(image.seed) +
          ", Size: " + std::to_string(image.pixels.width) + "x" +
          std::to_string(image.pixels.height) +
          ", Model: " + quoted_if_needed(request.model.manifest.id) +
          ", Model hash: " + digest.substr(0, 10);
  if (!job.references.empty()) text += ", Denoising strength: " + shortest(job.strength);
  std::string loras;
  for (const LoraRequest& lora : job.loras) {
    loras += (loras.empty() ? "" : ", ") + file_name(lora.path) + ": " + shortest(lora.scale);
  }
  if (!loras.empty()) text += ", Lora: " + quoted_if_needed(loras);
  return text + ", Version: mere.run " + version();
}

std::string json_text(const ResolvedImageRequest& request, const GeneratedImage& image,
                      const std::string& digest, const std::vector<std::string>& lora_sha256) {
  const ImageJob& job = request.job;
  nlohmann::ordered_json json = {
      {"prompt", job.prompt},
      {"negative_prompt", job.negative_prompt},
      {"seed", image.seed},
      {"width", image.pixels.width},
      {"height", image.pixels.height},
      {"steps", job.steps},
      {"cfg", json_float(job.guidance)},
      {"max_sequence_length", job.max_sequence_length},
  };
  if (job.sigma_shift) json["sigma_shift"] = json_float(*job.sigma_shift);
  for (const float sigma : job.sigmas) json["sigmas"].push_back(json_float(sigma));
  if (!job.references.empty()) {
    json["references"] = job.references.size();
    json["strength"] = json_float(job.strength);
  }
  json["loras"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < job.loras.size(); ++i) {
    json["loras"].push_back({{"file", file_name(job.loras[i].path)},
                             {"scale", json_float(job.loras[i].scale)},
                             {"sha256", i < lora_sha256.size() ? lora_sha256[i] : ""}});
  }
  json["model"] = request.model.manifest.id;
  json["model_digest"] = digest;
  json["family"] = request.family == nullptr ? "" : std::string(request.family->name());
  json["compute_type"] = compute_type();
  json["version"] = version();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Everything of a run after its request was checked.
class Generation {
 public:
  Generation(const ResolvedImageRequest& request, Progress& progress, const OutputSink& on_output)
      : request_(request), progress_(progress), on_output_(on_output) {}

  // `since` started with the call.
  ImageResult run(const Clock& since);

 private:
  void digest();
  void save(const GeneratedImage& image);
  void tell_what_stays();

  const ResolvedImageRequest& request_;
  Progress& progress_;
  const OutputSink& on_output_;
  std::vector<std::string> lora_sha256_;
  double save_seconds_ = 0;
  double digest_seconds_ = 0;
  ImageResult result_;
};

void Generation::digest() {
  const Clock clock;
  result_.model_digest = model_digest(request_.model, &progress_);
  if (request_.metadata) {
    for (const LoraRequest& lora : request_.job.loras) {
      lora_sha256_.push_back(sha256_file(lora.path));
    }
  }
  digest_seconds_ = clock.seconds();
}

void Generation::save(const GeneratedImage& image) {
  const size_t index = result_.outputs.size();
  const auto total = static_cast<int64_t>(request_.outputs.size());
  if (index >= request_.outputs.size()) {
    throw InternalError{{"too_many_pictures", "", "the model made more pictures than asked", ""}};
  }
  progress_.report(Stage::kSaving, static_cast<int64_t>(index), total);
  const Clock clock;
  const fs::path& path = request_.outputs[index];
  ImageText text;
  if (request_.metadata) {
    text = picture_text(request_, image, result_.model_digest, lora_sha256_);
  }
  const std::string bytes = encode_image(image.pixels, format_of_path(path), text);
  progress_.check_cancelled();
  write_file_atomic(path, bytes);
  save_seconds_ += clock.seconds();
  result_.outputs.push_back({path, image.seed});
  if (on_output_) on_output_(result_.outputs.back());
  result_.size = {image.pixels.width, image.pixels.height};
  if (result_.outputs.size() < request_.outputs.size()) return;
  try {
    progress_.report(Stage::kSaving, total, total);
  } catch (const Cancelled&) {
    // Too late: every picture is on disk, and saying "cancelled" would be wrong.
  }
}

void Generation::tell_what_stays() {
  const size_t done = result_.outputs.size();
  if (done == 0) return;
  progress_.warn(std::to_string(done) + " of " + std::to_string(request_.outputs.size()) +
                 " pictures were finished and stay: " + result_.outputs.front().path.string() +
                 (done > 1 ? " to " + result_.outputs.back().path.string() : ""));
}

ImageResult Generation::run(const Clock& since) {
  const ImageJob& job = request_.job;
  set_precision(request_.precision);
  try {
    const Clock load_clock;
    const std::unique_ptr<ImageModel> model = request_.family->load(request_.model, progress_);
    const double load_seconds = load_clock.seconds();
    digest();
    result_.first_step_seconds = since.seconds();
    ImageRun run =
        model->generate(job, progress_, [&](const GeneratedImage& image) { save(image); });
    if (result_.outputs.size() != request_.outputs.size()) {
      throw InternalError{{"too_few_pictures", "",
                           "the model made " + std::to_string(result_.outputs.size()) + " of " +
                               std::to_string(request_.outputs.size()) + " pictures",
                           ""}};
    }
    result_.timings = std::move(run.timings);
    for (const StageTiming& timing : result_.timings) {
      if (timing.stage == "denoise") break;
      if (timing.stage != "load") result_.first_step_seconds += timing.seconds;
    }
    if (std::ranges::find(result_.timings, "load", &StageTiming::stage) == result_.timings.end()) {
      result_.timings.insert(result_.timings.begin(), {"load", load_seconds});
    }
    result_.loras = std::move(run.loras);
    result_.cfg_mode = std::move(run.cfg_mode);
    result_.decode_mode = std::move(run.decode_mode);
  } catch (...) {
    tell_what_stays();
    throw;
  }
  result_.timings.push_back({"digest", digest_seconds_});
  result_.timings.push_back({"save", save_seconds_});
  result_.model_id = request_.model.manifest.id;
  result_.model_path = request_.model.path;
  result_.family = request_.family->name();
  result_.compute_type = compute_type();
  result_.steps = job.steps;
  result_.guidance = job.guidance;
  result_.max_sequence_length = job.max_sequence_length;
  result_.strength = job.strength;
  result_.warnings = request_.warnings;
  return std::move(result_);
}

// Waits until the machine has room for the job. Where it never will, the error of the request is
// the better one: it names a size that fits.
AdmissionLease admit(const ResolvedImageRequest& request, Progress& progress) {
  Workload workload = workload_of({"image", "generate"});
  workload.model = request.model.manifest.id;
  if (const CatalogModel* known = find_catalog_model(workload.model)) {
    add_catalog_facts(workload, *known);
  }
  if (request.info.weight_bytes > 0) workload.model_bytes = request.info.weight_bytes;
  workload.estimate_bytes = estimated_memory_bytes(request);
  workload.memory_is_vouched_for = request.memory_limit_bytes.has_value();
  AdmissionLease lease;
  try {
    lease = Admission().acquire(workload, progress);
  } catch (const ResourceError& e) {
    if (e.info().code == "admission_memory") check_free_memory(request);
    throw;
  }
  check_free_memory(request);
  return lease;
}

}  // namespace

ImageText picture_text(const ResolvedImageRequest& request, const GeneratedImage& image,
                       const std::string& model_digest,
                       const std::vector<std::string>& lora_sha256) {
  return {{"parameters", parameters_text(request, image, model_digest)},
          {"mere.run", json_text(request, image, model_digest, lora_sha256)}};
}

ImageResult generate_images(const ImageRequest& request, Progress& progress,
                            const OutputSink& on_output) {
  const Clock clock;
  const ResolvedImageRequest resolved = resolve_image_request(request, progress);
  const AdmissionLease lease = admit(resolved, progress);
  ImageResult result = Generation(resolved, progress, on_output).run(clock);
  if (lease.waited_seconds() > 0) {
    result.timings.insert(result.timings.begin(), {"waiting", lease.waited_seconds()});
  }
  result.total_seconds = clock.seconds();
  result.peak_memory_bytes = peak_rss_bytes();
  return result;
}

}  // namespace mere
