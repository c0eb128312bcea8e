#include "catalog/recognise.h"

#include <algorithm>
#include <array>
#include <vector>

#include "catalog/safetensors_header.h"
#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr size_t kMaxShards = 256;

struct FamilyRow {
  std::string_view name;  // what a file states begins with this
  std::string_view family;
  std::string_view engine;
  std::string_view category = "image";
};

// Pipelines of model_index.json. The first row that fits counts.
constexpr FamilyRow kPipelines[] = {
    {"Flux2Klein", "klein", "flux2-klein"},
    {"ZImage", "zimage", "zimage-turbo"},
    {"Flux2", "flux2-dev", "flux2-dev"},
    {"Flux", "flux1", "flux1"},
    {"QwenImage", "qwen-image", "qwen-image"},
    {"HiDreamO1", "hidream", "hidream-o1"},
    {"Krea", "krea", "krea-2"},
    {"Ideogram", "ideogram", "ideogram-4"},
    {"LTX", "video", "", "video"},
    {"Wan", "video", "", "video"},
};

// Classes of transformer/config.json.
constexpr FamilyRow kTransformers[] = {
    {"ZImageTransformer", "zimage", "zimage-turbo"},
    {"Flux2Transformer", "klein", "flux2-klein"},
    {"FluxTransformer", "flux1", "flux1"},
    {"QwenImageTransformer", "qwen-image", "qwen-image"},
};

// "model_type" of a config.json at the top.
constexpr FamilyRow kModelTypes[] = {
    {"gemma", "gemma", "gemma-4", "text"},
    {"qwen", "qwen", "", "text"},
    {"lfm2", "liquid", "lfm2", "text"},
};

// A tensor that only this family's transformer has.
struct TensorMark {
  std::string_view tensor;
  size_t rank;
  std::string_view family;
  std::string_view engine;
};
constexpr TensorMark kMarks[] = {
    {"double_stream_modulation_img.linear.weight", 2, "klein", "flux2-klein"},
    {"noise_refiner.0.attention.to_q.weight", 2, "zimage", "zimage-turbo"},
    {"txt_norm.weight", 1, "qwen-image", "qwen-image"},
    {"time_text_embed.timestep_embedder.linear_1.weight", 2, "flux1", "flux1"},
};

// Square matrices: [dim, dim] when not packed, so that their packing can be told.
constexpr std::string_view kSquares[] = {
    "transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_k",
    "noise_refiner.0.attention.to_q", "layers.0.attention.to_q"};

constexpr std::string_view kPackedSuffixes[] = {"-packed-mflux", "-mlx-4bit"};

bool is_there(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

const FamilyRow* find_row(std::span<const FamilyRow> rows, std::string_view name) {
  const auto row = std::ranges::find_if(
      rows, [&](const FamilyRow& known) { return name.starts_with(known.name); });
  return row == rows.end() ? nullptr : &*row;
}

RecognisedModel of_row(const FamilyRow& row, const char* layout) {
  RecognisedModel model;
  model.family = row.family;
  model.engine = row.engine;
  model.category = row.category;
  model.layout = layout;
  return model;
}

std::string stated_name(const Json& json, const char* key, const std::string& source) {
  return printable(json_string_or(json, key, "", source), 60);
}

RecognisedModel recognise_pipeline(const fs::path& index) {
  const std::string source = index.string();
  const Json json = parse_json_file(index, kMaxConfigBytes);
  const std::string class_name = stated_name(json, "_class_name", source);
  const FamilyRow* row =
      class_name.ends_with("Pipeline") ? find_row(kPipelines, class_name) : nullptr;
  RecognisedModel model = row == nullptr ? RecognisedModel{} : of_row(*row, "diffusers");
  model.layout = "diffusers";
  model.class_name = class_name;
  if (model.family == "klein") {
    // Silent: base, as in the reference pipeline.
    model.variant = json_bool_or(json, "is_distilled", false, source) ? "distilled" : "base";
  }
  return model;
}

std::optional<RecognisedModel> recognise_transformer_config(const fs::path& config) {
  const std::string source = config.string();
  const Json json = parse_json_file(config, kMaxConfigBytes);
  const std::string class_name = stated_name(json, "_class_name", source);
  const FamilyRow* row = find_row(kTransformers, class_name);
  if (row == nullptr) return std::nullopt;
  RecognisedModel model = of_row(*row, "diffusers");
  model.class_name = class_name;
  if (model.family == "klein" && json_bool_or(json, "guidance_embeds", false, source)) {
    model.family = model.engine = "flux2-dev";
  }
  return model;
}

// Weight files of a folder, sorted; hidden ones and those beyond kMaxShards left out.
std::vector<fs::path> weight_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    std::error_code status;
    if (name[0] != '.' && it->path().extension() == ".safetensors" && it->is_regular_file(status) &&
        files.size() < kMaxShards) {
      files.push_back(it->path());
    }
  }
  std::ranges::sort(files);
  return files;
}

std::optional<RecognisedModel> recognise_tensors(const fs::path& transformer) {
  std::optional<RecognisedModel> model;
  bool has_guidance = false;
  for (const fs::path& file : weight_files(transformer)) {
    const auto tensors = read_safetensors_header(file);
    for (const TensorMark& mark : kMarks) {
      const auto tensor = tensors.find(std::string(mark.tensor));
      if (model || tensor == tensors.end() || tensor->second.shape.size() != mark.rank) continue;
      model = of_row({mark.tensor, mark.family, mark.engine}, "mflux");
    }
    has_guidance = has_guidance || std::ranges::any_of(tensors, [](const auto& item) {
                     return item.first.starts_with("time_guidance_embed.guidance_");
                   });
  }
  // FLUX.2 Dev has Klein's names and an embedding of the guidance beside them.
  if (model && model->family == "klein" && has_guidance) {
    model->family = model->engine = "flux2-dev";
  }
  return model;
}

std::optional<RecognisedModel> recognise_model_type(const fs::path& config) {
  const Json json = parse_json_file(config, kMaxConfigBytes);
  const std::string type = stated_name(json, "model_type", config.string());
  const FamilyRow* row = find_row(kModelTypes, type);
  if (row == nullptr) return std::nullopt;
  RecognisedModel model = of_row(*row, "transformers");
  model.class_name = type;
  return model;
}

std::optional<RecognisedModel> recognise_3d(const fs::path& folder) {
  struct Checkpoint {
    const char* file;
    const char* beside;
    const char* engine;
  };
  static constexpr Checkpoint kCheckpoints[] = {
      {"model.ckpt", "config.yaml", "triposr"},
      {"instant_mesh_base.ckpt", "", "instantmesh"},
      {"pipeline.json", "ckpts", "trellis2"},
  };
  for (const Checkpoint& known : kCheckpoints) {
    if (!is_there(folder / known.file) || !is_there(folder / known.beside)) continue;
    return of_row({"", "3d", known.engine, "image-3d"}, "checkpoint");
  }
  return std::nullopt;
}

std::string plain_precision(const std::string& dtype) {
  if (dtype == "BF16") return "bf16";
  if (dtype == "F16") return "fp16";
  return dtype == "F32" ? "fp32" : "unknown";
}

}  // namespace

fs::path component_folder(const fs::path& root, const std::string& name) {
  if (is_there(root / name)) return root / name;
  for (const std::string_view suffix : kPackedSuffixes) {
    const fs::path packed = root / (name + std::string(suffix));
    if (is_there(packed)) return packed;
  }
  return root / name;
}

std::optional<RecognisedModel> recognise_model(const fs::path& folder) {
  if (is_there(folder / "model_index.json")) return recognise_pipeline(folder / "model_index.json");
  const fs::path transformer = component_folder(folder, "transformer");
  if (is_there(transformer / "config.json")) {
    if (auto model = recognise_transformer_config(transformer / "config.json")) return model;
  }
  if (is_there(transformer)) {
    if (auto model = recognise_tensors(transformer)) return model;
  }
  if (auto model = recognise_3d(folder)) return model;
  if (is_there(folder / "config.json")) return recognise_model_type(folder / "config.json");
  return std::nullopt;
}

RecognisedWeights recognise_weights(const fs::path& folder) {
  std::vector<fs::path> files = weight_files(component_folder(folder, "transformer"));
  if (files.empty()) files = weight_files(folder);
  RecognisedWeights weights{"unknown", std::nullopt};
  for (const fs::path& file : files) {
    const auto tensors = read_safetensors_header(file);
    for (const std::string_view square : kSquares) {
      const auto weight = tensors.find(std::string(square) + ".weight");
      if (weight == tensors.end() || weight->second.shape.size() != 2) continue;
      const auto scales = tensors.find(std::string(square) + ".scales");
      weights.precision = plain_precision(weight->second.dtype);
      if (scales == tensors.end() || weight->second.dtype != "U32") return weights;
      const int64_t rows = weight->second.shape[0];
      if (rows <= 0 || scales->second.shape.size() != 2 || scales->second.shape[1] <= 0) {
        return weights;
      }
      const int64_t bits = 32 * weight->second.shape[1] / rows;
      const int64_t group = rows / scales->second.shape[1];
      if (bits < 1 || bits > 8 || group < 1 || group > 1024) return weights;
      weights.precision = "int" + std::to_string(bits);
      weights.quantization = CatalogQuantization{static_cast<int>(bits), static_cast<int>(group),
                                                 "mlx-quantized-linear"};
      return weights;
    }
  }
  return weights;
}

}  // namespace mere
