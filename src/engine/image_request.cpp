#include "engine/image_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <ctime>
#include <limits>
#include <random>
#include <unistd.h>

#include "catalog/adapters.h"
#include "core/error.h"
#include "core/json.h"
#include "core/system.h"
#include "engine/families.h"

namespace mere {
namespace {

constexpr size_t kMaxPromptBytes = size_t{1} << 20;
constexpr int64_t kMaxCount = 1000;
constexpr int64_t kMaxSteps = 1000;
constexpr int64_t kMinSequenceLength = 8;
constexpr int64_t kMaxSequenceLength = 4096;
constexpr double kMaxGuidance = 100;
constexpr double kMinSigmaShift = 0.01;
constexpr double kMaxSigmaShift = 100;
constexpr double kDefaultInputStrength = 0.75;
// Room for the temporary name's extra characters and for the seed of a numbered file.
constexpr size_t kMaxOutputNameBytes = 220;

[[noreturn]] void refuse(const char* code, const char* field, std::string message,
                         std::string hint = "") {
  throw UsageError{{code, field, std::move(message), std::move(hint)}};
}

template <typename Number>
std::string shortest(Number value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string size_text(ImageSize size) {
  return std::to_string(size.width) + "x" + std::to_string(size.height);
}

template <std::floating_point Number>
void check_range(Number value, double low, double high, const char* field) {
  if (value >= low && value <= high) return;
  refuse("value_out_of_range", field,
         std::string(field) + " must be from " + shortest(low) + " to " + shortest(high) +
             ", not " + shortest(value));
}

void check_range(int64_t value, int64_t low, int64_t high, const char* field) {
  if (value >= low && value <= high) return;
  refuse("value_out_of_range", field,
         std::string(field) + " must be from " + std::to_string(low) + " to " +
             std::to_string(high) + ", not " + std::to_string(value));
}

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

void check_prompt(const std::string& prompt, const char* field) {
  if (prompt.size() > kMaxPromptBytes) {
    refuse("prompt_too_long", field,
           std::string(field) + " has " + std::to_string(prompt.size()) +
               " bytes, more than the limit of " + std::to_string(kMaxPromptBytes));
  }
  if (!is_utf8(prompt)) {
    refuse("prompt_not_utf8", field, std::string(field) + " is not valid UTF-8 text");
  }
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

// ---- Output paths -------------------------------------------------------------------------------

std::string default_output_name() {
  const std::string stem = "mererun-image-" + std::to_string(std::time(nullptr));
  std::string name = stem + ".png";
  std::error_code ec;
  for (int i = 2; fs::exists(name, ec) && i < 1000; ++i) {
    name = stem + "-" + std::to_string(i) + ".png";
  }
  return name;
}

bool is_link_to_nothing(const fs::path& path) {
  std::error_code ec;
  return fs::is_symlink(path, ec) && !fs::exists(path, ec);
}

// A name that a line of output, a JSON document and a terminal can carry unchanged.
void check_output_text(const std::string& output) {
  if (!is_utf8(output)) {
    refuse("output_name_not_utf8", "--output", "the name of the output is not valid UTF-8 text");
  }
  bool control = false;
  for (size_t i = 0; i < output.size(); ++i) {
    const auto byte = static_cast<unsigned char>(output[i]);
    // U+0080 to U+009F are control characters too: C2 80 to C2 9F.
    const bool c1 = byte == 0xC2 && static_cast<unsigned char>(output[i + 1]) < 0xA0;
    control |= byte < 0x20 || byte == 0x7F || c1;
  }
  if (control) {
    refuse("output_name_invalid", "--output", "the name of the output holds control characters");
  }
}

// What is there already must be a regular file, or a link to one. Looked at before ".png" is
// appended: -o /dev/null must not become a file beside the device.
void check_is_replaceable(const fs::path& output) {
  std::error_code ec;
  const fs::file_status status = fs::status(output, ec);
  if (fs::is_directory(status)) {
    refuse("output_is_folder", "--output", output.string() + " is a folder",
           "give the name of a file in it");
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    refuse("output_not_a_file", "--output", output.string() + " exists and is not a regular file");
  }
  if (is_link_to_nothing(output)) {
    refuse("output_not_a_file", "--output",
           output.string() + " is a symbolic link to a file that is not there");
  }
  // Where standard output is a file, /dev/stdout looks like one.
  const fs::path full = fs::absolute(output).lexically_normal();
  const std::string folder = full.parent_path().string() + "/";
  if (folder == "/dev/" || folder == "/dev/fd/" || folder.starts_with("/proc/")) {
    refuse("output_not_a_file", "--output", full.string() + " is not a place for pictures");
  }
}

// Finds out before minutes of work that the picture could not be written.
void check_writable(const fs::path& output) {
  check_is_replaceable(output);
  std::error_code ec;
  fs::path folder = output.parent_path();
  // Through a link the target is replaced.
  if (fs::is_symlink(output, ec)) folder = fs::canonical(output, ec).parent_path();
  while (!fs::exists(folder, ec) && folder != folder.parent_path()) {
    if (is_link_to_nothing(folder)) break;
    folder = folder.parent_path();
  }
  if (!fs::is_directory(folder, ec)) {
    refuse("output_unwritable", "--output", folder.string() + " is not a folder");
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse("output_unwritable", "--output", "no permission to write into " + folder.string());
  }
}

// "apple.png" for one picture; "apple-<seed>.png" each for several, so that the name says what
// makes the picture again.
std::vector<fs::path> output_paths(const std::string& output, const std::vector<uint64_t>& seeds) {
  if (output == "-") {
    refuse("output_not_a_file", "--output", "a picture cannot be written to standard output",
           "give a file name");
  }
  check_output_text(output);
  fs::path path = output.empty() ? fs::path(default_output_name()) : fs::path(output);
  if (!path.has_filename() || path.filename() == "." || path.filename() == "..") {
    refuse("output_is_folder", "--output", output + " names a folder",
           "give the name of a file in it");
  }
  check_is_replaceable(path);
  if (!path.has_extension()) path += ".png";
  (void)format_of_path(path);
  if (path.filename().string().size() > kMaxOutputNameBytes) {
    refuse("output_name_too_long", "--output",
           "the file name is longer than " + std::to_string(kMaxOutputNameBytes) + " bytes");
  }
  path = fs::absolute(path).lexically_normal();
  std::vector<fs::path> paths;
  for (const uint64_t seed : seeds) {
    fs::path one = path;
    if (seeds.size() > 1) {
      one.replace_filename(path.stem().string() + "-" + std::to_string(seed) +
                           path.extension().string());
    }
    check_writable(one);
    paths.push_back(std::move(one));
  }
  return paths;
}

std::string model_text(const ResolvedImageRequest& request) {
  return "model " + request.model.manifest.id + " (family " + std::string(request.family->name()) +
         ")";
}

// ---- The resolver -------------------------------------------------------------------------------

class Resolver {
 public:
  Resolver(const ImageRequest& request, Progress& progress)
      : request_(request), progress_(progress) {}

  ResolvedImageRequest resolve();

 private:
  void warn(const std::string& text) {
    progress_.warn(text);
    out_.warnings.push_back(text);
  }
  std::string model_text() const { return mere::model_text(out_); }
  bool use_option(OptionUse use, bool given, const char* field);

  void check_values();
  void find_model();
  void fill_prompt();
  void fill_seeds();
  void fill_schedule();
  void fill_guidance();
  void fill_references();
  void fill_loras();
  void fill_size();

  const ImageRequest& request_;
  Progress& progress_;
  ResolvedImageRequest out_;
};

// True when the option was given and counts; warns or throws when the model cannot use it.
bool Resolver::use_option(OptionUse use, bool given, const char* field) {
  if (!given) return false;
  if (use == OptionUse::kRefused) {
    refuse("option_unsupported", field, model_text() + " cannot use " + field,
           "leave the option out, or choose another --model");
  }
  if (use == OptionUse::kIgnored) warn(std::string(field) + " is not used by " + model_text());
  return use == OptionUse::kUsed;
}

// Everything that is wrong whatever the model.
void Resolver::check_values() {
  check_prompt(request_.prompt, "--prompt");
  if (request_.negative_prompt) check_prompt(*request_.negative_prompt, "--negative-prompt");
  check_range(request_.count, 1, kMaxCount, "--count");
  if (request_.cfg_scale) check_range(*request_.cfg_scale, 0, kMaxGuidance, "--cfg");
  if (request_.steps) check_range(*request_.steps, 1, kMaxSteps, "--steps");
  if (request_.strength) check_range(*request_.strength, 0, 1, "--strength");
  if (request_.max_sequence_length) {
    check_range(*request_.max_sequence_length, kMinSequenceLength, kMaxSequenceLength,
                "--max-sequence-length");
  }
  if (request_.sigma_shift) {
    check_range(*request_.sigma_shift, kMinSigmaShift, kMaxSigmaShift, "--sigma-shift");
  }
  if (request_.memory_limit_bytes && *request_.memory_limit_bytes <= 0) {
    refuse("value_out_of_range", "--memory-limit", "--memory-limit must be above zero");
  }
  if (request_.sigma_shift && !request_.sigmas.empty()) {
    refuse("options_conflict", "--sigmas", "--sigmas and --sigma-shift cannot be used together");
  }
}

void Resolver::find_model() {
  out_.model = resolve_image_model(request_.model, request_.models_dir, image_family_names());
  const Manifest& manifest = out_.model.manifest;
  out_.family = find_image_family(manifest.family);
  if (out_.family == nullptr) {
    std::string known;
    for (const std::string& name : image_family_names()) {
      known += (known.empty() ? "" : ", ") + name;
    }
    refuse("family_unsupported", "--model",
           "model " + manifest.id + " is of family \"" + manifest.family +
               "\", which this program cannot draw with",
           "families: " + known);
  }
  out_.info = out_.family->describe(out_.model);
  progress_.note("model: " + manifest.id +
                 (out_.model.chosen_because.empty() ? "" : " (" + out_.model.chosen_because + ")"));
}

void Resolver::fill_prompt() {
  out_.job.prompt = request_.prompt;
  out_.job.negative_prompt = request_.negative_prompt.value_or("");
  if (is_blank(request_.prompt)) warn("the prompt is empty: the picture will be arbitrary");
  out_.job.max_sequence_length = request_.max_sequence_length
                                     ? static_cast<int>(*request_.max_sequence_length)
                                     : out_.info.default_max_sequence_length;
}

void Resolver::fill_seeds() {
  // 32 random bits: torch's generator uses no more of a seed, and the number stays exact in JSON
  // readers that keep doubles.
  const uint64_t first = request_.seed ? *request_.seed : std::random_device{}();
  const auto count = static_cast<uint64_t>(request_.count);
  if (first > std::numeric_limits<uint64_t>::max() - (count - 1)) {
    refuse("value_out_of_range", "--seed",
           "--seed " + std::to_string(first) + " leaves no room for " + std::to_string(count) +
               " pictures below 2^64");
  }
  for (uint64_t i = 0; i < count; ++i) out_.job.seeds.push_back(first + i);
}

void Resolver::fill_schedule() {
  ImageJob& job = out_.job;
  job.steps = request_.steps ? static_cast<int>(*request_.steps) : out_.info.default_steps;
  job.sigma_shift = out_.info.default_sigma_shift;
  if (use_option(out_.info.sigma_shift, request_.sigma_shift.has_value(), "--sigma-shift")) {
    job.sigma_shift = static_cast<float>(*request_.sigma_shift);
  }
  if (!use_option(out_.info.sigmas, !request_.sigmas.empty(), "--sigmas")) return;
  std::vector<double> sigmas = request_.sigmas;
  if (sigmas.back() == 0) sigmas.pop_back();
  if (sigmas.empty() || sigmas.size() > static_cast<size_t>(kMaxSteps)) {
    refuse("sigmas_invalid", "--sigmas",
           "--sigmas needs 1 to " + std::to_string(kMaxSteps) + " numbers above zero");
  }
  double previous = std::numeric_limits<double>::infinity();
  for (const double sigma : sigmas) {
    if (!(sigma > 0 && sigma <= 1)) {
      refuse("sigmas_invalid", "--sigmas",
             "--sigmas holds " + shortest(sigma) + ", which is not above 0 and at most 1",
             "only the last one may be 0");
    }
    if (sigma >= previous) {
      refuse("sigmas_invalid", "--sigmas",
             "--sigmas must fall: " + shortest(sigma) + " follows " + shortest(previous));
    }
    previous = sigma;
  }
  const auto count = static_cast<int>(sigmas.size());
  if (request_.steps && *request_.steps != count) {
    refuse("sigmas_invalid", "--sigmas",
           "--sigmas gives " + std::to_string(count) + " steps and --steps asks for " +
               std::to_string(*request_.steps),
           "leave --steps out");
  }
  job.steps = count;
  job.sigmas.assign(sigmas.begin(), sigmas.end());
  job.sigma_shift.reset();
}

void Resolver::fill_guidance() {
  const ImageModelInfo& info = out_.info;
  out_.job.guidance = info.default_guidance;
  const bool negative = request_.negative_prompt && !is_blank(*request_.negative_prompt);
  if (!info.guidance_has_effect) {
    if (request_.cfg_scale && *request_.cfg_scale != 1) {
      warn("distilled model: --cfg " + shortest(*request_.cfg_scale) + " is not used");
    }
    if (negative) warn("distilled model: --negative-prompt is not used");
    out_.job.negative_prompt.clear();
    return;
  }
  if (request_.cfg_scale) out_.job.guidance = static_cast<float>(*request_.cfg_scale);
  if (negative && out_.job.guidance <= 1) {
    warn("--negative-prompt is used only when --cfg is above 1");
  }
}

void Resolver::fill_references() {
  const OptionUse use = out_.info.references;
  const bool input = use_option(use, request_.input.has_value(), "--input");
  const bool more = use_option(use, !request_.ref_images.empty(), "--ref-image");
  std::vector<std::string> paths;
  if (input) paths.push_back(*request_.input);
  if (more) paths.insert(paths.end(), request_.ref_images.begin(), request_.ref_images.end());
  const auto most = static_cast<size_t>(std::max(0, out_.info.max_references));
  if (paths.size() > most) {
    warn("only the first " + std::to_string(most) + " of " + std::to_string(paths.size()) +
         " pictures are used: " + model_text() + " takes no more");
    paths.resize(most);
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    const char* field = input && i == 0 ? "--input" : "--ref-image";
    std::error_code ec;
    if (!fs::is_regular_file(paths[i], ec)) {
      refuse("file_not_found", field, std::string(field) + ": no picture file at " + paths[i]);
    }
    const Image image = read_image(paths[i]);
    const auto& prepare = out_.info.prepare_reference;
    out_.job.references.push_back(prepare ? prepare(image, paths[i]) : image);
  }
  if (request_.keep_original_aspect) {
    warn("--keep-original-aspect is not used by " + model_text());
  }
  if (out_.job.references.empty()) {
    if (request_.strength && !request_.input && request_.ref_images.empty()) {
      warn("--strength is not used without --input or --ref-image");
    }
    return;
  }
  out_.job.strength =
      static_cast<float>(request_.strength.value_or(input ? kDefaultInputStrength : 0.0));
}

void Resolver::fill_loras() {
  if (!use_option(out_.info.lora, !request_.loras.empty(), "--lora")) return;
  if (request_.loras.size() > static_cast<size_t>(std::max(0, out_.info.max_loras))) {
    refuse("too_many_loras", "--lora",
           model_text() + " takes at most " + std::to_string(out_.info.max_loras) +
               " --lora, not " + std::to_string(request_.loras.size()));
  }
  for (const LoraRequest& lora : request_.loras) {
    check_range(lora.scale, -kMaxLoraScale, kMaxLoraScale, "--lora");
    out_.job.loras.push_back({resolve_adapter(lora.path, "--lora").string(), lora.scale});
  }
}

void Resolver::fill_size() {
  const ImageModelInfo& info = out_.info;
  const bool asked = request_.width || request_.height;
  ImageSize size = info.default_size;
  if (!asked && !out_.job.references.empty() && info.sizes.only.empty()) {
    size = {out_.job.references.front().width, out_.job.references.front().height};
  }
  if (request_.width) size.width = *request_.width;
  if (request_.height) size.height = *request_.height;
  if (!is_legal_size(info.sizes, size)) {
    // Bounded so that differences of sides cannot overflow.
    const auto bounded = [](int64_t side) { return std::clamp<int64_t>(side, 0, 1 << 24); };
    std::string nearest;
    for (const ImageSize legal :
         nearest_legal_sizes(info.sizes, {bounded(size.width), bounded(size.height)})) {
      nearest += (nearest.empty() ? "" : " or ") + size_text(legal);
    }
    std::string rule = "sides are multiples of " + std::to_string(info.sizes.multiple) + " from " +
                       std::to_string(info.sizes.min_side) + " to " +
                       std::to_string(info.sizes.max_side);
    if (!info.sizes.only.empty()) {
      rule = "this model draws";
      for (const ImageSize legal : info.sizes.only) {
        rule += (legal == info.sizes.only.front() ? " " : ", ") + size_text(legal);
      }
      rule += " only";
    }
    refuse("size_unsupported", request_.width ? "--width" : "--height",
           "size " + size_text(size) + " is not one that model " + out_.model.manifest.id +
               " draws: " + rule,
           nearest.empty() ? "" : "nearest: " + nearest);
  }
  out_.job.size = size;
}

int64_t saturating_add(int64_t a, int64_t b) {
  return a > std::numeric_limits<int64_t>::max() - b ? std::numeric_limits<int64_t>::max() : a + b;
}

// Memory of the job if its pictures had `size`.
int64_t needed_bytes(const ResolvedImageRequest& request, ImageSize size) {
  const ImageModelInfo& info = request.info;
  ImageExtent extent = extent_of(request.job, info.guidance_has_effect && request.job.guidance > 1);
  extent.size = size;
  return saturating_add(std::max<int64_t>(0, info.weight_bytes),
                        std::max<int64_t>(0, info.activation_bytes(extent)));
}

// `available` is what the limit is where the request sets none.
void check_memory(const ResolvedImageRequest& request, int64_t available) {
  const ImageModelInfo& info = request.info;
  if (!info.activation_bytes) return;
  const int64_t limit = request.memory_limit_bytes.value_or(available);
  const ImageSize size = request.job.size;
  const int64_t needed = needed_bytes(request, size);
  if (needed <= limit) return;

  std::string hint = "choose a smaller model or free memory";
  for (int sixteenths = 15; sixteenths > 0; --sixteenths) {
    const auto side = [&](int64_t length) {
      return length * sixteenths / 16 / info.sizes.multiple * info.sizes.multiple;
    };
    const ImageSize smaller{side(size.width), side(size.height)};
    if (!is_legal_size(info.sizes, smaller) || needed_bytes(request, smaller) > limit) continue;
    hint = size_text(smaller) + " would fit";
    break;
  }
  hint += request.memory_limit_bytes ? "; or raise --memory-limit"
                                     : "; --memory-limit overrides the estimate";
  // Numbers that are told apart by the bytes only.
  const bool close = human_bytes(needed) == human_bytes(limit);
  const auto text = [&](int64_t bytes) {
    return close ? std::to_string(bytes) + " bytes" : human_bytes(bytes);
  };
  throw ResourceError{{"memory", request.memory_limit_bytes ? "--memory-limit" : "--width",
                       "a " + size_text(size) + " picture with " + model_text(request) +
                           " needs about " + text(needed) + " of memory (" +
                           human_bytes(std::max<int64_t>(0, info.weight_bytes)) +
                           " of them weights), more than the " + text(limit) +
                           (request.memory_limit_bytes ? " of --memory-limit" : " available"),
                       hint}};
}

// Cheap checks first: reading pictures is the only costly part and comes last.
ResolvedImageRequest Resolver::resolve() {
  check_values();
  find_model();
  fill_seeds();
  out_.outputs = output_paths(request_.output, out_.job.seeds);
  out_.metadata = request_.metadata;
  out_.precision = request_.precision;
  fill_prompt();
  fill_schedule();
  fill_guidance();
  fill_loras();
  if (request_.width || request_.height) fill_size();
  fill_references();
  fill_size();
  out_.memory_limit_bytes = request_.memory_limit_bytes;
  check_memory(out_, usable_memory_bytes());
  out_.job.memory_limit_bytes = request_.memory_limit_bytes.value_or(0);
  const std::vector<uint64_t>& seeds = out_.job.seeds;
  progress_.note("seed: " + std::to_string(seeds.front()) +
                 (seeds.size() > 1 ? " to " + std::to_string(seeds.back()) : ""));
  return std::move(out_);
}

}  // namespace

ResolvedImageRequest resolve_image_request(const ImageRequest& request, Progress& progress) {
  return Resolver(request, progress).resolve();
}

std::optional<int64_t> estimated_memory_bytes(const ResolvedImageRequest& request) {
  if (!request.info.activation_bytes) return std::nullopt;
  return needed_bytes(request, request.job.size);
}

void check_free_memory(const ResolvedImageRequest& request) {
  check_memory(request, available_memory_bytes());
}

}  // namespace mere
