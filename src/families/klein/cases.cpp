#include "families/klein/cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "core/error.h"
#include "families/case_file.h"
#include "families/klein/pipeline.h"
#include "families/klein/references.h"
#include "lora/adapter.h"

namespace mere::klein {
namespace {

constexpr int64_t kMaxSide = 4096;  // pixels; bounds what a case may ask for

struct Context {
  const GoldenCase& golden;
  Progress& progress;

  // The folder a case names, or --model.
  ModelRoot model(const Json& parameters) const {
    if (golden.model_override) return open_model_root(*golden.model_override);
    const std::string name = json_string_or(parameters, "model", "model", golden.file.string());
    return open_model_root(name == "." ? golden.root : resolve_inside(golden.root, name));
  }
  fs::path file(const std::string& name) const { return resolve_inside(golden.root, name); }
};

// [B, H, W, C] as the NCHW tensor that cases hold.
Array channels_first(const Array& x) { return mx::transpose(x, {0, 3, 1, 2}); }
Array channels_last(const Array& x) { return mx::transpose(x, {0, 2, 3, 1}); }

CaseTensor ids_tensor(const PositionIds& ids, int64_t batch) {
  CaseTensor out{{batch, static_cast<int64_t>(ids.size()), 4}, {}};
  for (int64_t b = 0; b < batch; ++b) {
    for (const auto& row : ids) out.values.insert(out.values.end(), row.begin(), row.end());
  }
  return out;
}

PositionIds input_ids(CaseFile& file, const std::string& name) {
  const CaseTensor tensor = file.input_values(name);
  if (tensor.shape.size() != 3 || tensor.shape[2] != 4) {
    throw IoError{{"case_invalid", name, file.source() + ": " + name + " is not [B, L, 4]", ""}};
  }
  PositionIds ids(static_cast<size_t>(tensor.shape[1]));
  for (size_t i = 0; i < ids.size() * 4; ++i)
    ids[i / 4][i % 4] = static_cast<int64_t>(tensor.values[i]);
  return ids;
}

Image input_image(CaseFile& file, const std::string& name) {
  const CaseTensor tensor = file.input_values(name);
  if (tensor.shape.size() != 3 || tensor.shape[2] != 3) {
    throw IoError{{"case_invalid", name, file.source() + ": " + name + " is not [H, W, 3]", ""}};
  }
  Image image(tensor.shape[1], tensor.shape[0]);
  std::ranges::transform(tensor.values, image.rgb.begin(),
                         [](double v) { return static_cast<uint8_t>(v); });
  return image;
}

CaseTensor image_tensor(const Image& image) {
  return {{image.height, image.width, 3}, {image.rgb.begin(), image.rgb.end()}};
}

// [H/2, 2] pairs repeated as the reference stores them: c0 c0 c1 c1 ...
Array repeat_pairs(const Array& table) { return mx::repeat(table, 2, 1); }

// ---- stages ---------------------------------------------------------------------------------

void run_rope(CaseFile& file, const Context& context) {
  const Json& p = file.parameters();
  TransformerConfig config = Config::read(context.model(p)).transformer;
  config.axes_dims_rope =
      json_ints(p, "axes_dims_rope", 2, 1024, file.source()).value_or(config.axes_dims_rope);
  config.rope_theta = json_number_or(p, "theta", 1, 1e12, config.rope_theta, file.source());
  config.attention_head_dim = 0;
  for (const int64_t dim : config.axes_dims_rope) config.attention_head_dim += dim;
  const PositionIds text = text_position_ids(json_int(p, "text_len", 0, 65536, file.source()));
  const auto grid = json_ints(p, "latent_hw", 1, kMaxSide, file.source()).value();
  const PositionIds image = image_position_ids(grid.at(0), grid.at(1), 0);
  PositionIds references;
  for (const Json& hw : p.value("ref_hw", Json::array())) {
    const int64_t k = static_cast<int64_t>(references.empty() ? 0 : (references.back()[0] / 10));
    const PositionIds own =
        image_position_ids(hw.at(0).get<int64_t>(), hw.at(1).get<int64_t>(), 10 + 10 * k);
    references.insert(references.end(), own.begin(), own.end());
  }
  PositionIds all = text;
  all.insert(all.end(), image.begin(), image.end());
  all.insert(all.end(), references.begin(), references.end());
  const RotaryTables tables = rotary_tables(config, all);
  file.output("txt_ids", ids_tensor(text, 1), 0);
  file.output("img_ids", ids_tensor(image, 1), 0);
  file.output("ref_ids", ids_tensor(references, 1), 0);
  file.output("cos", repeat_pairs(tables.cos));
  file.output("sin", repeat_pairs(tables.sin));
}

void run_text_encoder(CaseFile& file, const Context& context) {
  const Json& p = file.parameters();
  Pipeline pipeline(context.model(p));
  const int64_t length = json_int(p, "max_sequence_length", 1, 65536, file.source());
  const auto layers =
      json_ints(p, "out_layers", 0, 1024, file.source()).value_or(std::vector<int64_t>{});
  std::vector<int64_t> extra;
  for (int64_t state = 0; state <= pipeline.config().text_encoder.num_hidden_layers; ++state) {
    if (file.has("hidden_" + std::to_string(state))) extra.push_back(state);
  }
  const auto prompts = p.at("prompts").get<std::vector<std::string>>();
  const PromptEmbedding e =
      pipeline.encode_prompts(prompts, length, context.progress, layers, extra);
  const auto batch = static_cast<int64_t>(prompts.size());
  CaseTensor ids{{batch, length}, {}};
  CaseTensor mask{{batch, length}, {}};
  for (const TokenizedPrompt& prompt : e.prompts) {
    ids.values.insert(ids.values.end(), prompt.ids.begin(), prompt.ids.end());
    for (int64_t i = 0; i < length; ++i) mask.values.push_back(i < prompt.valid ? 1 : 0);
  }
  file.output("input_ids", ids, 0);
  file.output("attention_mask", mask, 0);
  file.output("text_ids", ids_tensor(text_position_ids(length), batch), 0);
  for (const auto& [state, value] : e.states) file.output("hidden_" + std::to_string(state), value);
  file.output("prompt_embeds", e.embeds);
}

TransformerInput transformer_input(CaseFile& file, const TransformerConfig& config) {
  PositionIds ids = input_ids(file, "txt_ids");
  const PositionIds image = input_ids(file, "img_ids");
  ids.insert(ids.end(), image.begin(), image.end());
  const std::vector<float> sigma = to_floats(file.input("timestep"));
  return {.hidden_states = file.input("hidden_states"),
          .encoder_hidden_states = file.input("encoder_hidden_states"),
          .sigma = sigma,
          .rotary = rotary_tables(config, ids)};
}

void run_transformer(CaseFile& file, const Context& context) {
  Pipeline pipeline(context.model(file.parameters()));
  const TransformerInput input = transformer_input(file, pipeline.config().transformer);
  Taps taps;
  const Array output = pipeline.transformer()(input, &context.progress, &taps);
  for (const auto& [name, value] : taps) file.output(name, value);
  file.output("output", output);
}

// A transformer alone, without the rest of a model: `model` is its folder, or holds transformer/.
void run_transformer_alone(CaseFile& file, const Context& context) {
  const Json& p = file.parameters();
  initialize_engine();
  fs::path folder = context.golden.model_override.value_or(
      context.file(json_string_or(p, "model", "model", file.source())));
  if (fs::is_directory(folder / "transformer")) folder /= "transformer";
  const std::string config_from = json_string_or(p, "config_from", "", file.source());
  const TransformerConfig config = TransformerConfig::read(
      config_from.empty() ? folder / "config.json" : context.file(config_from));
  const Weights weights = Weights::open(folder, transformer_checkpoint_name);
  weights.check_values();
  const Transformer transformer(config, weights);
  TransformerInput input = transformer_input(file, config);
  file.output("output_without_guidance", transformer(input, &context.progress));
  if (file.has("guidance")) input.guidance = to_floats(file.input("guidance"));
  file.output("output", transformer(input, &context.progress));
}

void run_vae(CaseFile& file, const Context& context) {
  Pipeline pipeline(context.model(file.parameters()));
  const AutoencoderKlFlux2& vae = pipeline.vae();
  Taps taps;
  const Array mean = vae.encode_mean(channels_last(file.input("image")), &taps);
  const Array patchified = AutoencoderKlFlux2::patchify(mean);
  const Array normalized = vae.normalize(patchified);
  const Array given = channels_last(file.input("decode_in_normalized"));
  const Array denormalized = vae.denormalize(given);
  const Array unpatchified = AutoencoderKlFlux2::unpatchify(denormalized);
  file.output("decoded", channels_first(vae.decode(unpatchified, &taps)));
  for (const auto& [name, value] : taps) file.output(name, channels_first(value));
  file.output("patchified", channels_first(patchified));
  file.output("normalized", channels_first(normalized));
  file.output("packed", mx::reshape(normalized, {normalized.shape(0), -1, normalized.shape(3)}));
  file.output("decode_in_denormalized", channels_first(denormalized));
  file.output("decode_in_unpatchified", channels_first(unpatchified));
  const Array again = AutoencoderKlFlux2::unpatchify(vae.denormalize(normalized));
  file.output("roundtrip", channels_first(vae.decode(again)));
}

void run_vae_odd(CaseFile& file, const Context& context) {
  Pipeline pipeline(context.model(file.parameters()));
  file.output("mean",
              channels_first(pipeline.vae().encode_mean(channels_last(file.input("image")))));
  file.output("decoded",
              channels_first(pipeline.vae().decode(channels_last(file.input("latent")))));
}

void run_image_processor(CaseFile& file, const Context&) {
  const Json& p = file.parameters();
  const std::string& source = file.source();
  static constexpr std::string_view kFormula = "u8[y,x,c] = (x*7 + y*13 + c*29 + (x*y)%31) & 255";
  if (json_string_or(p, "formula", "", source) != kFormula) {
    throw IoError{{"case_invalid", "formula", source + ": unknown picture formula", ""}};
  }
  Image image(json_int(p, "width", 1, kMaxSide, source),
              json_int(p, "height", 1, kMaxSide, source));
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        image.rgb[(y * image.width + x) * 3 + c] =
            static_cast<uint8_t>((x * 7 + y * 13 + c * 29 + (x * y) % 31) & 255);
      }
    }
  }
  constexpr double kOneLevel = 1.0;
  const Image resized = resize_lanczos(image, json_int(p, "resized_width", 1, kMaxSide, source),
                                       json_int(p, "resized_height", 1, kMaxSide, source));
  const auto part = [&](const Image& from, const std::string& name, int64_t top, int64_t left) {
    const auto shape = file.shape(name);
    return crop(from, left, top, shape.at(1), shape.at(0));
  };
  const auto mid = json_ints(p, "mid_offset", 0, kMaxSide, source).value();
  const auto corner = file.shape("resized_bottomright");
  file.output("resized_topleft", image_tensor(part(resized, "resized_topleft", 0, 0)), kOneLevel);
  file.output("resized_mid", image_tensor(part(resized, "resized_mid", mid.at(0), mid.at(1))),
              kOneLevel);
  file.output("resized_bottomright",
              image_tensor(part(resized, "resized_bottomright", resized.height - corner.at(0),
                                resized.width - corner.at(1))),
              kOneLevel);
  const Image prepared = prepare_reference(image, "formula picture");
  const auto shape = file.shape("preprocessed_topleft");
  const Image head = crop(prepared, 0, 0, shape.at(3), shape.at(2));
  file.output("preprocessed_topleft", channels_first(image_to_array(head)), 2.0 / 255.0);
  const Image small = prepare_reference(input_image(file, "small"), "small picture");
  file.output("small_preprocessed", channels_first(image_to_array(small)));
}

// ---- pipeline -------------------------------------------------------------------------------

int64_t floor16(int64_t side) { return side / 16 * 16; }

// The rows of `embeds` that the case keeps: all, or the first of "NAME_head".
void output_embeds(CaseFile& file, const std::string& name, const Array& embeds) {
  file.output(name, embeds);
  const std::string head = name + "_head";
  if (!file.has(head)) return;
  const auto rows = static_cast<int>(std::min<int64_t>(file.shape(head).at(1), embeds.shape(1)));
  file.output(head, mx::slice(embeds, {0, 0, 0}, {embeds.shape(0), rows, embeds.shape(2)}));
}

void apply_case_loras(Pipeline& pipeline, const Json& p, const Context& context) {
  const LoraTargets targets = lora_targets(pipeline.config().transformer.shape());
  for (const Json& item : p.value("lora", Json::array())) {
    const Adapter adapter = read_adapter(context.file(item.at("file").get<std::string>()), targets);
    pipeline.transformer().add_adapter(adapter, item.at("scale").get<float>());
  }
}

std::vector<std::string> case_prompts(const Json& p) {
  const Json& prompt = p.at("prompt");
  const auto given = prompt.is_array() ? prompt.get<std::vector<std::string>>()
                                       : std::vector<std::string>{prompt.get<std::string>()};
  std::vector<std::string> prompts;
  for (const std::string& text : given) {
    for (int i = 0; i < p.value("num_images_per_prompt", 1); ++i) prompts.push_back(text);
  }
  return prompts;
}

Array noise_of(CaseFile& file, const Json& p, const TransformerConfig& config, LatentGrid grid,
               int batch) {
  if (!p.contains("seed") || p.at("seed").is_null()) return file.input("noise");
  const Array noise = seed_noise(p.at("seed").get<uint64_t>(), config, grid, batch);
  file.output("noise", noise, 1e-6);
  return noise;
}

CaseTensor token_tensor(const TokenizedPrompt& prompt) {
  return {{prompt.valid}, {prompt.ids.begin(), prompt.ids.begin() + prompt.valid}};
}

// One whole run; `batched` decides how guidance is computed, `label` how its tensors are named.
void run_pipeline_once(CaseFile& file, const Context& context, Pipeline& pipeline, bool batched,
                       const std::string& label) {
  const Json& p = file.parameters();
  const std::string& source = file.source();
  const std::vector<std::string> prompts = case_prompts(p);
  const int batch = static_cast<int>(prompts.size());
  const int64_t length = json_int_or(p, "max_sequence_length", 1, 65536, 512, source);
  const auto layers =
      json_ints(p, "text_encoder_out_layers", 0, 1024, source).value_or(std::vector<int64_t>{});
  std::vector<Image> references;
  for (const Json& name : p.value("refs", Json::array())) {
    references.push_back(
        prepare_reference(input_image(file, name.get<std::string>()), name.get<std::string>()));
  }
  const bool from_reference = !p.contains("height") || p.at("height").is_null();
  const int64_t height = from_reference ? references.at(0).height
                                        : floor16(json_int(p, "height", 16, kMaxSide, source));
  const int64_t width =
      from_reference ? references.at(0).width : floor16(json_int(p, "width", 16, kMaxSide, source));
  const LatentGrid grid{height / 16, width / 16};
  const int steps = static_cast<int>(json_int(p, "steps", 1, 1000, source));

  const PromptEmbedding prompt = pipeline.encode_prompts(prompts, length, context.progress, layers);
  const Array noise = noise_of(file, p, pipeline.config().transformer, grid, batch);
  DenoiseRequest request{
      .latents = pack_noise(noise),
      .grid = grid,
      .prompt = prompt.embeds,
      .guidance = static_cast<float>(json_number_or(p, "guidance_scale", 0, 1000, 1, source)),
      .batched_guidance = batched,
      .schedule = klein_schedule(grid.tokens(), steps, std::nullopt, {}),
  };
  if (request.guidance > 1.0F && !pipeline.config().is_distilled) {
    const std::vector<std::string> empty(prompts.size());
    request.negative_prompt =
        pipeline.encode_prompts(empty, length, context.progress, layers).embeds;
  }
  if (!references.empty())
    request.references = pipeline.encode_references(references, context.progress);
  std::vector<Array> step_latents;
  request.on_step = [&](int, const Array& latents) { step_latents.push_back(latents); };
  Taps taps;
  request.taps = &taps;
  const Array latents = pipeline.denoise(request, context.progress);
  const Array decoded = channels_first(pipeline.decode(latents, grid));
  const Array image =
      mx::clip(decoded / mx::array(2.0F) + mx::array(0.5F), mx::array(0.0F), mx::array(1.0F));
  if (!label.empty()) {
    file.output_as("step_latents" + label, "step_latents", mx::stack(step_latents, 0));
    file.output_as("image" + label, "image", image);
    return;
  }
  file.output("token_ids", token_tensor(prompt.prompts.front()), 0);
  output_embeds(file, "prompt_embeds", prompt.embeds);
  if (request.negative_prompt)
    output_embeds(file, "negative_prompt_embeds", *request.negative_prompt);
  if (request.references) {
    file.output("ref_latents", request.references->tokens);
    file.output("ref_ids", ids_tensor(request.references->ids, 1), 0);
  }
  const mx::Shape sigmas = {static_cast<int>(request.schedule.sigmas.size())};
  file.output("sigmas", array_from(request.schedule.sigmas, sigmas), 1e-6);
  const mx::Shape timesteps = {static_cast<int>(request.schedule.timesteps.size())};
  file.output("timesteps", array_from(request.schedule.timesteps, timesteps), 1e-6);
  for (const auto& [name, value] : taps) file.output(name, value);
  file.output("step_latents", mx::stack(step_latents, 0));
  file.output("decoder_out", decoded);
  file.output("image", image);
}

void run_pipeline(CaseFile& file, const Context& context) {
  const Json& p = file.parameters();
  Pipeline pipeline(context.model(p));
  apply_case_loras(pipeline, p, context);
  run_pipeline_once(file, context, pipeline, false, "");
  const bool guided = !pipeline.config().is_distilled && p.value("guidance_scale", 1.0) > 1.0;
  if (guided) run_pipeline_once(file, context, pipeline, true, " (batched guidance)");
}

// ---- lists in JSON --------------------------------------------------------------------------

CaseTensor id_list(const Json& ids) {
  CaseTensor out{{static_cast<int64_t>(ids.size())}, {}};
  for (const Json& id : ids) out.values.push_back(id.get<double>());
  return out;
}

CaseTensor id_list(const std::vector<int32_t>& ids) {
  return {{static_cast<int64_t>(ids.size())}, {ids.begin(), ids.end()}};
}

TensorCheck check_text(const std::string& name, const std::string& actual,
                       const std::string& expected) {
  return {.name = name,
          .passed = actual == expected,
          .problem = actual == expected ? "" : "text differs"};
}

// tokenizer.json belongs to "model", tokenizer_NAME.json to "NAME".
std::string model_of_list(const fs::path& file, const Json& json) {
  if (json.contains("model") && json.at("model").is_string())
    return json.at("model").get<std::string>();
  const std::string stem = file.stem().string();
  const size_t underscore = stem.find('_');
  return underscore == std::string::npos ? "model" : stem.substr(underscore + 1);
}

void run_tokenizer_list(const Json& json, const Context& context, CaseCheck& check) {
  const ModelRoot root = context.model({{"model", model_of_list(context.golden.file, json)}});
  const Tokenizer tokenizer = Tokenizer::open(root.component("tokenizer"));
  int row = 0;
  for (const Json& item : json.value("raw", Json::array())) {
    const std::string name = "raw " + std::to_string(row++);
    const auto ids = tokenizer.encode(item.at("text").get<std::string>());
    check.tensors.push_back(compare_tensors(name, id_list(ids), id_list(item.at("ids")), 0));
    if (item.contains("decoded")) {
      check.tensors.push_back(
          check_text(name + " decoded", tokenizer.decode(ids), item.at("decoded")));
    }
  }
  row = 0;
  for (const Json& item : json.value("chat", Json::array())) {
    const std::string name = "chat " + std::to_string(row++);
    const std::string prompt = item.at("prompt");
    check.tensors.push_back(
        check_text(name + " rendered", render_prompt(prompt), item.at("rendered")));
    const int64_t length = json_int(item, "max_length", 1, 65536, context.golden.file.string());
    const TokenizedPrompt tokenized = tokenize_prompt(tokenizer, prompt, length);
    check.tensors.push_back(
        compare_tensors(name, token_tensor(tokenized), id_list(item.at("ids")), 0));
  }
  if (json.contains("pad_id")) {
    const TokenizedPrompt padded = tokenize_prompt(tokenizer, "", 512);
    check.tensors.push_back(compare_tensors("pad_id",
                                            {{1}, {static_cast<double>(padded.ids.back())}},
                                            {{1}, {json.at("pad_id").get<double>()}}, 0));
  }
}

void run_schedule_list(const Json& json, const Context&, CaseCheck& check) {
  int row = 0;
  for (const Json& item : json.at("rows")) {
    const std::string name = "row " + std::to_string(row++);
    const auto tokens = item.at("image_seq_len").get<int64_t>();
    const int steps = item.at("steps").get<int>();
    const FlowMatchSchedule schedule = klein_schedule(tokens, steps, std::nullopt, {});
    const auto list = [](const std::vector<float>& values) {
      return CaseTensor{{static_cast<int64_t>(values.size())}, {values.begin(), values.end()}};
    };
    check.tensors.push_back(compare_tensors(name + " mu",
                                            {{1}, {flux2_empirical_mu(tokens, steps)}},
                                            {{1}, {item.at("mu").get<double>()}}, 1e-6));
    check.tensors.push_back(
        compare_tensors(name + " sigmas", list(schedule.sigmas), id_list(item.at("sigmas")), 1e-6));
    check.tensors.push_back(compare_tensors(name + " timesteps", list(schedule.timesteps),
                                            id_list(item.at("timesteps")), 1e-6));
  }
}

void run_mflux_names(const Json& json, const Context&, CaseCheck& check) {
  struct Row {
    const char* component;
    std::string (*rename)(const std::string&);
  };
  static constexpr std::array<Row, 3> kRows = {{{"transformer", transformer_checkpoint_name},
                                                {"vae", autoencoder_kl_flux2_checkpoint_name},
                                                {"text_encoder", qwen3_checkpoint_name}}};
  for (const Row& row : kRows) {
    for (const Json& pair : json.at(row.component).at("pairs")) {
      const std::string expected = pair.at(0);
      const std::string label = std::string(row.component) + " " + expected;
      check.tensors.push_back(
          check_text(label, row.rename(pair.at(1).get<std::string>()), expected));
      check.tensors.push_back(check_text(label + " (itself)", row.rename(expected), expected));
    }
  }
}

// ---- tables ---------------------------------------------------------------------------------

struct TensorStage {
  std::string_view kind;
  void (*run)(CaseFile& file, const Context& context);
};
constexpr std::array<TensorStage, 9> kTensorStages = {{
    {"rope", run_rope},
    {"text_encoder", run_text_encoder},
    {"transformer", run_transformer},
    {"transformer_guidance", run_transformer_alone},
    {"transformer_mflux", run_transformer_alone},
    {"vae", run_vae},
    {"vae_odd", run_vae_odd},
    {"image_processor", run_image_processor},
    {"pipeline", run_pipeline},
}};

// A list is told by a key that only it has.
struct ListStage {
  std::string_view kind;
  const char* key;
  void (*run)(const Json& json, const Context& context, CaseCheck& check);
};
constexpr std::array<ListStage, 3> kListStages = {{
    {"tokenizer", "raw", run_tokenizer_list},
    {"schedule", "rows", run_schedule_list},
    {"mflux_names", "columns", run_mflux_names},
}};

const ListStage* list_stage(const Json& json) {
  if (!json.is_object()) return nullptr;
  const auto* it =
      std::ranges::find_if(kListStages, [&](const ListStage& s) { return json.contains(s.key); });
  return it == kListStages.end() ? nullptr : it;
}

CaseCheck run_tensor_case(const Context& context) {
  CaseFile file(context.golden.file);
  const auto* stage = std::ranges::find(kTensorStages, file.kind(), &TensorStage::kind);
  if (stage == kTensorStages.end()) {
    throw IoError{{"case_invalid", "kind",
                   file.source() + ": unknown stage \"" + printable(file.kind()) + "\"", ""}};
  }
  stage->run(file, context);
  return file.finish();
}

CaseCheck run_list_case(const Context& context) {
  const Json json = parse_json_file(context.golden.file);
  const ListStage* stage = list_stage(json);
  CaseCheck check{.file = context.golden.file.filename().string(),
                  .kind = std::string(stage->kind)};
  stage->run(json, context, check);
  check.passed = !check.tensors.empty() && std::ranges::all_of(check.tensors, &TensorCheck::passed);
  return check;
}

}  // namespace

std::string case_kind(const fs::path& file) {
  if (file.extension() == ".safetensors") return CaseFile(file).kind();
  const ListStage* stage = list_stage(parse_json_file(file));
  return stage == nullptr ? "" : std::string(stage->kind);
}

CaseCheck run_case(const GoldenCase& golden, Progress& progress) {
  const Context context{golden, progress};
  CaseCheck failed{.file = golden.file.filename().string(), .kind = case_kind(golden.file)};
  try {
    return golden.file.extension() == ".json" ? run_list_case(context) : run_tensor_case(context);
  } catch (const Cancelled&) {
    throw;
  } catch (const Json::exception& e) {
    failed.problem = golden.file.string() +
                     ": a parameter is missing or of another type: " + printable(e.what());
  } catch (const std::exception& e) {
    failed.problem = e.what();
  }
  return failed;
}

}  // namespace mere::klein
