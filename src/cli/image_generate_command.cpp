#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/terminal_progress.h"
#include "core/json.h"
#include "core/system.h"
#include "engine/image_request.h"
#include "media/terminal_picture.h"

namespace mere::cli {
namespace {

constexpr const char* kPromptGroup = "Prompt";
constexpr const char* kPictureGroup = "Picture";
constexpr const char* kSamplingGroup = "Sampling";
constexpr const char* kInputGroup = "Input pictures";
constexpr const char* kModelGroup = "Model and adapters";
constexpr const char* kOutputGroup = "Output";

struct GenerateOptions {
  ImageRequest request;
  std::optional<double> lora_scale;
  bool no_metadata = false;
  bool show = false;
  bool json = false;
  bool progress_json = false;
  bool quiet = false;
};

Document output_document(const ImageOutput& output) {
  return {{"path", output.path.string()}, {"seed", output.seed}};
}

Document result_document(const ImageResult& result, const std::vector<std::string>& warnings) {
  Document document = {{"status", "completed"}};
  document["path"] = result.outputs.front().path.string();
  document["seed"] = result.outputs.front().seed;
  document["outputs"] = Document::array();
  for (const ImageOutput& output : result.outputs) {
    document["outputs"].push_back(output_document(output));
  }
  document["width"] = result.size.width;
  document["height"] = result.size.height;
  document["steps"] = result.steps;
  document["cfg"] = json_float(result.guidance);
  document["cfg_mode"] = result.cfg_mode;
  document["decode_mode"] = result.decode_mode;
  document["compute_type"] = result.compute_type;
  document["strength"] = json_float(result.strength);
  document["max_sequence_length"] = result.max_sequence_length;
  document["model"] = {{"id", result.model_id},
                       {"family", result.family},
                       {"path", result.model_path.string()},
                       {"digest", result.model_digest}};
  document["loras"] = Document::array();
  for (const LoraReport& lora : result.loras) {
    document["loras"].push_back({{"path", lora.path},
                                 {"scale", json_float(lora.scale)},
                                 {"applied", lora.applied},
                                 {"total", lora.total},
                                 {"unmatched", lora.unmatched}});
  }
  document["timings_seconds"] = Document::object();
  for (const StageTiming& timing : result.timings) {
    Document& seconds = document["timings_seconds"][timing.stage];
    seconds = timing.seconds + (seconds.is_number() ? seconds.get<double>() : 0.0);
  }
  document["first_step_seconds"] = result.first_step_seconds;
  document["total_seconds"] = result.total_seconds;
  document["peak_memory_bytes"] = result.peak_memory_bytes;
  document["warnings"] = warnings;
  document["version"] = version();
  return document;
}

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Why detect_terminal_protocol() found none.
std::string no_protocol_reason() {
  if (variable("MERERUN_SHOW_PROTOCOL") == "none") return "MERERUN_SHOW_PROTOCOL is none";
  const std::string choices =
      "; MERERUN_SHOW_PROTOCOL=kitty, iterm2 or sixel says which way it can";
  const std::string_view term = variable("TERM");
  if (!variable("TMUX").empty() || term.starts_with("tmux")) {
    return "tmux does not pass pictures on" + choices;
  }
  if (!variable("STY").empty() || term.starts_with("screen")) {
    return "screen does not pass pictures on" + choices;
  }
  return "this terminal is not known to show pictures" + choices;
}

// Draws the pictures into the terminal behind stderr: stdout carries the paths.
void show_pictures(const ImageResult& result, std::optional<TerminalProtocol> protocol,
                   TerminalProgress& progress) {
  if (!progress.is_terminal()) {
    progress.warn("--show: standard error is not a terminal");
    return;
  }
  if (!protocol) {
    progress.warn("--show: " + no_protocol_reason());
    return;
  }
  for (const ImageOutput& output : result.outputs) {
    const std::string picture = terminal_picture(read_image(output.path), *protocol);
    std::fwrite(picture.data(), 1, picture.size(), stderr);
  }
}

void print_summary(const GenerateOptions& options, const ImageResult& result,
                   TerminalProgress& progress) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f s", result.total_seconds);
  for (const ImageOutput& output : result.outputs) {
    progress.note("saved " + output.path.string() + " (" + std::to_string(result.size.width) + "x" +
                  std::to_string(result.size.height) + ", seed " + std::to_string(output.seed) +
                  ")");
  }
  progress.note(std::string("done in ") + seconds + ", peak memory " +
                human_bytes(result.peak_memory_bytes));
  // Without notes a seed that nobody chose would be lost when it is stored nowhere either.
  const bool notes_hidden = options.quiet || options.progress_json;
  const bool stored = options.json || !options.no_metadata;
  if (notes_hidden && !stored && !options.request.seed) {
    std::fprintf(stderr, "seed: %llu\n",
                 static_cast<unsigned long long>(result.outputs.front().seed));
  }
}

// Multiplies every adapter's scale with --lora-scale.
void scale_loras(GenerateOptions& options, TerminalProgress& progress) {
  if (!options.lora_scale) return;
  if (options.request.loras.empty()) progress.warn("--lora-scale is not used without --lora");
  for (LoraRequest& lora : options.request.loras) {
    const auto scale = static_cast<float>(lora.scale * *options.lora_scale);
    if (!(std::abs(scale) <= kMaxLoraScale)) {
      throw UsageError{{"value_out_of_range", "--lora-scale",
                        "--lora-scale " + number_text(*options.lora_scale) + " times the scale " +
                            number_text(lora.scale) + " of " + lora.path +
                            " is not from -100 to 100",
                        ""}};
    }
    lora.scale = scale;
  }
}

int draw(GenerateOptions& options, Context& context, TerminalProgress& progress) {
  ImageRequest& request = options.request;
  request.models_dir = context.named_models_dir(progress);
  request.metadata = !options.no_metadata;
  scale_loras(options, progress);
  // A wrong MERERUN_SHOW_PROTOCOL is told now, not after minutes of work.
  const auto protocol = options.show ? detect_terminal_protocol() : std::nullopt;
  const bool human = !options.progress_json && !options.quiet;
  const InterruptGuard interrupt(progress, human && progress.is_terminal());
  const ImageResult result = generate_images(request, progress, [&](const ImageOutput& output) {
    context.outputs.push_back(output_document(output));
  });
  progress.finish_line();
  if (options.show) show_pictures(result, protocol, progress);
  print_summary(options, result, progress);
  if (options.json) {
    print_document(result_document(result, progress.warnings()));
    return 0;
  }
  for (const ImageOutput& output : result.outputs) print_result(output.path.string() + "\n");
  return 0;
}

int run_generate(GenerateOptions& options, Context& context) {
  TerminalProgress progress(options.progress_json ? ProgressStyle::kJson
                            : options.quiet       ? ProgressStyle::kQuiet
                                                  : ProgressStyle::kHuman);
  try {
    return draw(options, context, progress);
  } catch (...) {
    context.warnings = progress.warnings();
    throw;
  }
}

// Declares options whose text goes through a parser.
class OptionTable {
 public:
  explicit OptionTable(CLI::App& command) : command_(command) {}

  template <typename Set>
  CLI::Option* value(const char* group, const char* names, const char* type, const char* help,
                     Set set) {
    return command_
        .add_option_function<std::string>(
            names, [set](const std::string& text) { set(text); }, help)
        ->type_name(type)
        ->group(group);
  }

  // May be given several times, one value each time.
  template <typename Add>
  void repeatable(const char* group, const char* names, const char* type, const char* help,
                  Add add) {
    command_
        .add_option_function<std::vector<std::string>>(
            names,
            [add](const std::vector<std::string>& texts) {
              for (const std::string& text : texts) add(text);
            },
            help)
        ->allow_extra_args(false)
        ->option_text(type)  // the default adds "...", as if one option took several values
        ->group(group);
  }

  void flag(const char* group, const char* names, bool& target, const char* help) {
    command_.add_flag(names, target, help)->group(group);
  }

 private:
  CLI::App& command_;
};

void declare_prompt_and_picture(OptionTable table, GenerateOptions& options) {
  ImageRequest& request = options.request;
  table
      .value(kPromptGroup, "-p,--prompt", "TEXT", "What to draw",
             [&](const std::string& text) { request.prompt = text; })
      ->required();
  table.value(kPromptGroup, "-n,--negative-prompt", "TEXT",
              "What to keep out; used when --cfg is above 1 and the model has guidance",
              [&](const std::string& text) { request.negative_prompt = text; });
  table.value(kPromptGroup, "--max-sequence-length", "N",
              "Text tokens the model reads, 8 to 4096 (default: the model's, usually 512)",
              [&](const std::string& text) {
                request.max_sequence_length = parse_int(text, "--max-sequence-length");
              });
  table.value(kPictureGroup, "-W,--width", "PIXELS",
              "Width (default: the model's, usually 1024). A size the model cannot draw is refused "
              "and the nearest ones are named",
              [&](const std::string& text) { request.width = parse_int(text, "--width"); });
  table.value(kPictureGroup, "-H,--height", "PIXELS", "Height (default: as --width)",
              [&](const std::string& text) { request.height = parse_int(text, "--height"); });
  table.value(kPictureGroup, "--seed", "N",
              "Seed, 0 to 2^64-1 (default: random). The same seed gives the same picture",
              [&](const std::string& text) { request.seed = parse_seed(text, "--seed"); });
  table.value(kPictureGroup, "--count", "N",
              "Pictures to draw, 1 to 1000, with seeds SEED, SEED+1, ... (default: 1)",
              [&](const std::string& text) { request.count = parse_int(text, "--count"); });
}

void declare_sampling(OptionTable table, GenerateOptions& options) {
  ImageRequest& request = options.request;
  table.value(kSamplingGroup, "-s,--steps", "N",
              "Denoising steps, 1 to 1000 (default: the model's)",
              [&](const std::string& text) { request.steps = parse_int(text, "--steps"); });
  table.value(kSamplingGroup, "--cfg,--cfg-scale", "X",
              "Guidance scale, 0 to 100; 1 is off (default: the model's)",
              [&](const std::string& text) { request.cfg_scale = parse_number(text, "--cfg"); });
  table.value(
      kSamplingGroup, "--sigma-shift", "X",
      "Shift of the noise schedule, 0.01 to 100 (default: the model's)",
      [&](const std::string& text) { request.sigma_shift = parse_number(text, "--sigma-shift"); });
  table.value(
      kSamplingGroup, "--sigmas", "LIST",
      "The noise schedule itself: falling numbers, separated by commas, at most 1; a last 0 "
      "may be left out. Not with --sigma-shift; must agree with --steps",
      [&](const std::string& text) { request.sigmas = parse_numbers(text, "--sigmas"); });
}

void declare_inputs(OptionTable table, GenerateOptions& options) {
  ImageRequest& request = options.request;
  table.value(kInputGroup, "-i,--input", "FILE", "Picture to start from (PNG, JPEG or WebP)",
              [&](const std::string& text) { request.input = non_empty(text, "--input"); });
  table.repeatable(kInputGroup, "--ref-image", "FILE",
                   "Picture to refer to; may be repeated. The model takes the first ones, counting "
                   "--input",
                   [&](const std::string& text) {
                     request.ref_images.push_back(non_empty(text, "--ref-image"));
                   });
  table.value(
      kInputGroup, "--strength,--str", "X",
      "How much of --input may change, 0 to 1 (default: 0.75 with --input, 0 with "
      "--ref-image alone)",
      [&](const std::string& text) { request.strength = parse_number(text, "--strength"); });
  table.flag(kInputGroup, "--keep-original-aspect", request.keep_original_aspect,
             "Keep the aspect of the reference (families that have it; others warn)");
}

void declare_model(OptionTable table, GenerateOptions& options) {
  ImageRequest& request = options.request;
  table.value(kModelGroup, "-m,--model", "ID|DIR",
              "Installed model or the folder of one; a folder wins over an id (default: the first "
              "installed image model, else the one that ships with the program)",
              [&](const std::string& text) { request.model = non_empty(text, "--model"); });
  table.repeatable(
      kModelGroup, "-l,--lora", "FILE|ID[=SCALE]",
      "LoRA adapter, a file or the id of a pulled one, and how strongly it acts (default: 1); may "
      "be repeated",
      [&](const std::string& text) { request.loras.push_back(parse_lora(text, "--lora")); });
  table.value(kModelGroup, "--lora-scale", "X", "Multiplies the scale of every --lora (default: 1)",
              [&](const std::string& text) {
                options.lora_scale =
                    parse_number_within(text, -kMaxLoraScale, kMaxLoraScale, "--lora-scale");
              });
  table.value(kModelGroup, "--memory-limit", "SIZE",
              "Memory this run may plan with, e.g. 8GB or 512MB (default: what the machine has "
              "free). A picture that needs more is refused",
              [&](const std::string& text) {
                request.memory_limit_bytes = parse_memory(text, "--memory-limit");
              });
}

void declare_precision(OptionTable table, GenerateOptions& options) {
  table.value(kModelGroup, "--precision", "auto|f32",
              "How the processor computes: auto is the fastest that the eye cannot tell from f32, "
              "the exact one (default: auto)",
              [&](const std::string& text) {
                options.request.precision = parse_precision(text, "--precision");
              });
}

void declare_output(OptionTable table, GenerateOptions& options) {
  table.value(
      kOutputGroup, "-o,--output", "FILE",
      "Where to write: .png, .jpg or .webp (default: ./mererun-image-<unix time>.png). With "
      "--count above 1, -SEED is put before the extension. An existing file is replaced",
      [&](const std::string& text) { options.request.output = non_empty(text, "--output"); });
  table.flag(kOutputGroup, "--no-metadata", options.no_metadata,
             "Do not store prompt, seed and model in the picture");
  table.flag(kOutputGroup, "--show", options.show,
             "Show the picture in terminals that can (kitty, iTerm2, sixel)");
  table.flag(kOutputGroup, "--json", options.json,
             "Print one JSON document instead of the path; errors too");
  table.flag(kOutputGroup, "--progress-json", options.progress_json,
             "Progress as one JSON object a line on stderr; wins over --quiet");
  table.flag(kOutputGroup, "-q,--quiet", options.quiet, "No progress; warnings and errors remain");
}

}  // namespace

void add_image_generate_command(CLI::App& image, Context& context) {
  CLI::App* command = image.add_subcommand("generate", "Draw pictures from words");
  const auto options = std::make_shared<GenerateOptions>();
  const OptionTable table(*command);
  declare_prompt_and_picture(table, *options);
  declare_sampling(table, *options);
  declare_inputs(table, *options);
  declare_model(table, *options);
  declare_precision(table, *options);
  declare_output(table, *options);
  command->callback([options, &context] {
    context.action = [options, &context] { return run_generate(*options, context); };
  });
}

}  // namespace mere::cli
