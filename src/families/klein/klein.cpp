#include "families/klein/klein.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/error.h"
#include "core/system.h"
#include "families/klein/cases.h"
#include "families/klein/pipeline.h"
#include "families/klein/references.h"

namespace mere::klein {
namespace {

constexpr int64_t kPatchPixels = 16;  // pixels per packed latent
constexpr int kMaxReferences = 4;
constexpr int kMaxLoras = 16;
constexpr int64_t kBatchedGuidanceMemory = int64_t{24} << 30;

class Stopwatch {
 public:
  explicit Stopwatch(ImageRun& run) : run_(run) {}
  // Adds the time since the last call to the stage's total.
  void lap(const std::string& stage) {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    const auto it = std::ranges::find(run_.timings, stage, &StageTiming::stage);
    if (it == run_.timings.end()) {
      run_.timings.push_back({stage, seconds});
    } else {
      it->seconds += seconds;
    }
  }

 private:
  ImageRun& run_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

constexpr int64_t kFixedBytes = int64_t{64} << 20;  // beside weights and activations

// What convolutions pack beside the arrays that a plan counts.
constexpr int64_t with_margin(int64_t plan_bytes) { return plan_bytes + plan_bytes / 12; }

// With the picture decoded in the smallest tiles.
int64_t activation_bytes(const Config& config, const ImageExtent& picture) {
  const TransformerConfig& t = config.transformer;
  const Qwen3Config& q = config.text_encoder;
  const ImageSize size = picture.size;
  const int64_t passes = picture.guided ? 2 : 1;
  const auto bytes = [](int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); };
  // A reference has at most 1024 x 1024 pixels.
  const int64_t image_tokens = size.width * size.height / (kPatchPixels * kPatchPixels);
  const int64_t tokens = image_tokens + picture.text_tokens + picture.references * 4096;
  // The widest place is a single block: its projection, the joined attention and MLP output, and
  // the normed input beside the residual.
  const int64_t per_token = 2 * (3 * t.hidden() + 2 * t.mlp_hidden()) + 6 * t.hidden();
  // Beside it the states of the text: joined, embedded, and their packed copy.
  const int64_t states = 3 * t.joint_attention_dim * picture.text_tokens;
  const int64_t transformer = bytes(tokens * per_token + states) * passes;
  // The residual, queries, keys, values and their rotated copies, gate, up and their product; and
  // the states that are kept.
  const int64_t of_heads = q.head_dim * (q.num_attention_heads + q.num_key_value_heads);
  const auto kept = static_cast<int64_t>(config.text_encoder_out_layers.size()) * q.hidden_size;
  const int64_t text = bytes(picture.text_tokens * (3 * q.hidden_size + 3 * of_heads +
                                                    3 * q.intermediate_size + 2 * kept * passes));
  const int64_t decoder =
      with_margin(AutoencoderKlFlux2::plan(config.vae, size.width, size.height, 0).bytes);
  return kFixedBytes + std::max({transformer, text, decoder});
}

int64_t weight_bytes(const ModelRoot& root) {
  int64_t total = 0;
  for (const char* component : {"text_encoder", "transformer", "vae"}) {
    std::error_code ec;
    for (fs::directory_iterator it(root.component(component), ec), end; !ec && it != end;
         it.increment(ec)) {
      if (it->path().extension() == ".safetensors")
        total += static_cast<int64_t>(it->file_size(ec));
    }
  }
  return total;
}

// "batched", "serial" or "" (auto) from the environment; the model-specific variable wins.
std::string guidance_policy() {
  for (const char* name : {"MERERUN_FLUX2_BATCHED_CFG", "MERERUN_IMAGE_BATCHED_CFG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string policy = value;
    if (policy == "auto") return "";
    if (policy == "batched" || policy == "serial") return policy;
    throw UsageError{{"environment", name, std::string(name) + " is \"" + printable(policy) + "\"",
                      "use batched, serial or auto"}};
  }
  return "";
}

int64_t memory_limit(const ImageJob& job) {
  return job.memory_limit_bytes > 0 ? job.memory_limit_bytes : available_memory_bytes();
}

// The picture as a whole where the limit allows it, else in tiles, which is slower and told.
DecodePlan choose_decode_plan(const Config& config, const ModelRoot& root, const ImageJob& job,
                              Progress& progress) {
  const auto plan = [&](int64_t limit) {
    return AutoencoderKlFlux2::plan(config.vae, job.size.width, job.size.height, limit);
  };
  const int64_t others = weight_bytes(root) + kFixedBytes;
  const int64_t limit = memory_limit(job);
  const int64_t room = std::max<int64_t>(0, limit - others);
  DecodePlan chosen = plan(room - room / 13);  // with_margin() gives the room again
  if (!chosen.tile_rows.empty()) {
    const DecodePlan whole = plan(std::numeric_limits<int64_t>::max());
    progress.note("decoding in tiles: the picture as a whole needs " +
                  human_bytes(with_margin(whole.bytes) + others) + " of memory, the limit is " +
                  human_bytes(limit));
  }
  return chosen;
}

// Both passes at once where memory is plenty: a machine of 24 GiB and more whose free memory covers
// the doubled activations twice.
bool use_batched_guidance(const Config& config, const ImageJob& job) {
  const std::string policy = guidance_policy();
  if (!policy.empty()) return policy == "batched";
  return physical_memory_bytes() >= kBatchedGuidanceMemory &&
         2 * activation_bytes(config, extent_of(job, true)) < memory_limit(job);
}

bool supports(const Manifest& manifest, std::string_view what) {
  return !manifest.supports_stated ||
         std::ranges::find(manifest.supports, what) != manifest.supports.end();
}

bool is_uniform(const Image& image) {
  for (size_t i = 3; i < image.rgb.size(); ++i) {
    if (image.rgb[i] != image.rgb[i % 3]) return false;
  }
  return true;
}

class Model : public ImageModel {
 public:
  Model(const ModelRoot& root, Progress& progress) : pipeline_(root) {
    Stopwatch watch(loading_);
    pipeline_.load(progress);
    watch.lap("load");
  }

  ImageRun generate(const ImageJob& job, Progress& progress, const ImageSink& sink) override {
    ImageRun run = loading_;
    loading_ = {};
    Stopwatch watch(run);
    apply_loras(job, progress, run);
    if (!job.loras.empty()) watch.lap("lora");

    const ImageSize size = job.size;
    const LatentGrid grid{size.height / kPatchPixels, size.width / kPatchPixels};
    const DecodePlan decode_plan =
        choose_decode_plan(pipeline_.config(), pipeline_.root(), job, progress);
    run.decode_mode = decode_plan.tile_rows.empty() ? "whole" : "tiled";
    DenoiseRequest request = encode_text(job, progress);
    watch.lap("text_encoder");

    request.grid = grid;
    request.schedule = klein_schedule(grid.tokens(), job.steps, job.sigma_shift, job.sigmas);
    request.batched_guidance =
        request.negative_prompt && use_batched_guidance(pipeline_.config(), job);
    run.cfg_mode = !request.negative_prompt   ? "none"
                   : request.batched_guidance ? "batched"
                                              : "serial";
    std::optional<Array> start;
    if (!job.references.empty()) {
      request.references = pipeline_.encode_references(job.references, progress);
      request.first_step = first_step_of(job);
      if (request.first_step > 0) {
        start = pipeline_.encode_image(cover(job.references.front(), size.width, size.height));
      }
      watch.lap("references");
    }
    for (const uint64_t seed : job.seeds) {
      request.latents = starting_latents(seed, grid, request, start);
      const Array latents = pipeline_.denoise(request, progress);
      watch.lap("denoise");
      Image image = array_to_image(pipeline_.decode(latents, grid, decode_plan, progress));
      watch.lap("decode");
      if (is_uniform(image)) {
        throw InternalError{{"uniform_image", "",
                             "every pixel came out the same colour; no picture was written",
                             "the weights or an adapter may be damaged"}};
      }
      sink({std::move(image), seed});
      watch.lap("save");
    }
    return run;
  }

 private:
  // Adapters of an earlier request never stay.
  void apply_loras(const ImageJob& job, Progress& progress, ImageRun& run) {
    pipeline_.transformer().clear_adapters();
    const LoraTargets targets = lora_targets(pipeline_.config().transformer.shape());
    for (const LoraRequest& lora : job.loras) {
      progress.report(Stage::kLoadingLora, 0, 0);
      const Adapter adapter = read_adapter(lora.path, targets);
      pipeline_.transformer().add_adapter(adapter, lora.scale);
      run.loras.push_back(
          {lora.path, lora.scale, adapter.applied, adapter.total, adapter.unmatched});
      const std::string counts = lora.path + ": applied " + std::to_string(adapter.applied) +
                                 " of " + std::to_string(adapter.total);
      progress.note("LoRA " + counts);
      if (adapter.unmatched.empty()) continue;
      std::string names;
      for (size_t i = 0; i < std::min<size_t>(3, adapter.unmatched.size()); ++i) {
        names += (i == 0 ? "" : ", ") + printable(adapter.unmatched[i], 80);
      }
      progress.warn("LoRA " + counts + "; unmatched: " + names +
                    (adapter.unmatched.size() > 3 ? ", ..." : ""));
    }
  }

  DenoiseRequest encode_text(const ImageJob& job, Progress& progress) {
    DenoiseRequest request{
        .latents = mx::array(0.0F),
        .grid = {},
        .prompt = mx::array(0.0F),
    };
    const PromptEmbedding prompt =
        pipeline_.encode_prompts({job.prompt}, job.max_sequence_length, progress);
    if (prompt.prompts.front().truncated) {
      progress.warn("the prompt is longer than " + std::to_string(job.max_sequence_length) +
                    " tokens; its end was cut off");
    }
    request.prompt = prompt.embeds;
    if (!pipeline_.config().is_distilled && job.guidance > 1.0F) {
      request.guidance = job.guidance;
      request.negative_prompt =
          pipeline_.encode_prompts({job.negative_prompt}, job.max_sequence_length, progress).embeds;
    }
    return request;
  }

  // strength is the share of the schedule that runs; 0 and 1 start from pure noise.
  static int first_step_of(const ImageJob& job) {
    if (job.strength <= 0.0F || job.strength >= 1.0F) return 0;
    const auto steps = static_cast<double>(job.sigmas.empty() ? job.steps : job.sigmas.size());
    const int first = static_cast<int>(steps - std::min(steps * job.strength, steps));
    return std::min(first, static_cast<int>(steps) - 1);
  }

  Array starting_latents(uint64_t seed, LatentGrid grid, const DenoiseRequest& request,
                         const std::optional<Array>& start) const {
    const Array noise = pack_noise(seed_noise(seed, pipeline_.config().transformer, grid, 1));
    if (!start) return noise;
    const float sigma = request.schedule.sigmas[request.first_step];
    return noise * mx::array(sigma) + *start * mx::array(1.0F - sigma);
  }

  Pipeline pipeline_;
  ImageRun loading_;
};

class Family : public ImageFamily {
 public:
  std::string_view name() const override { return "klein"; }

  ImageModelInfo describe(const ModelRoot& root) const override {
    initialize_engine();
    const Config config = Config::read(root);
    config.check_text_fits(root);
    (void)guidance_policy();  // a wrong value is refused before any weight is read
    const Manifest& m = root.manifest;
    ImageModelInfo info;
    for (const ModelSize& size : m.sizes) info.sizes.only.push_back({size.width, size.height});
    info.sizes.multiple = kPatchPixels;
    info.default_size = {m.width.value_or(1024), m.height.value_or(1024)};
    info.default_steps = static_cast<int>(m.steps.value_or(config.is_distilled ? 4 : 50));
    info.default_guidance = static_cast<float>(m.cfg.value_or(config.is_distilled ? 1.0 : 4.0));
    info.default_max_sequence_length = static_cast<int>(m.max_sequence_length.value_or(512));
    if (m.sigma_shift) info.default_sigma_shift = static_cast<float>(*m.sigma_shift);
    info.guidance_has_effect = !config.is_distilled;
    info.references = supports(m, "reference_edit") ? OptionUse::kUsed : OptionUse::kRefused;
    info.max_references = kMaxReferences;
    info.prepare_reference = prepare_reference;
    info.lora = supports(m, "lora_inference") ? OptionUse::kUsed : OptionUse::kRefused;
    info.max_loras = kMaxLoras;
    info.sigmas = OptionUse::kUsed;
    info.sigma_shift = OptionUse::kUsed;
    info.activation_bytes = [config](const ImageExtent& picture) {
      return activation_bytes(config, picture);
    };
    info.weight_bytes = weight_bytes(root);
    return info;
  }

  std::unique_ptr<ImageModel> load(const ModelRoot& root, Progress& progress) const override {
    return std::make_unique<Model>(root, progress);
  }

  std::string case_kind(const fs::path& file) const override { return klein::case_kind(file); }

  CaseCheck run_case(const GoldenCase& golden, Progress& progress) const override {
    return klein::run_case(golden, progress);
  }

  CaseCheck self_check(const ModelRoot& root, std::string_view test,
                       Progress& progress) const override {
    return klein::self_check(root, test, progress);
  }
};

}  // namespace

const ImageFamily& family() {
  static const Family instance;
  return instance;
}

}  // namespace mere::klein
