#include "catalog/model_check.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "catalog/names.h"
#include "catalog/recognise.h"
#include "catalog/safetensors_header.h"
#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr size_t kMaxIndexBytes = size_t{16} << 20;
constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr size_t kMaxFolderEntries = 4096;

constexpr std::string_view kWeightComponents[] = {"text_encoder", "transformer",
                                                  "unconditional_transformer", "vae"};

// Families whose folders are made of components, whatever their layout.
constexpr std::string_view kComponentFamilies[] = {"klein", "zimage", "flux2-dev", "flux1",
                                                   "qwen-image"};

bool is_there(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

bool is_folder(const fs::path& path) {
  std::error_code ec;
  return fs::is_directory(path, ec);
}

ModelCheck incomplete(std::string file, std::string problem) {
  return {ModelState::kIncomplete, std::move(file), std::move(problem)};
}

// What is wrong with one file of the list; nullopt when nothing is.
std::optional<ModelCheck> check_file(const ModelRoot& model, const InstalledFile& file) {
  const fs::path path = installed_file(model, file.path);
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (!fs::exists(status)) return incomplete(file.path, file.path + " is missing");
  if (!fs::is_regular_file(status)) {
    return ModelCheck{ModelState::kDamaged, file.path, file.path + " is no regular file"};
  }
  const auto bytes = static_cast<int64_t>(fs::file_size(path, ec));
  if (ec || bytes != file.bytes) {
    return incomplete(file.path, file.path + " has " + std::to_string(bytes) +
                                     " bytes instead of " + std::to_string(file.bytes));
  }
  return std::nullopt;
}

// Shards that an index names and that are not there, then weights that are not whole. `at` is the
// folder's name in messages, with a slash at its end, or empty.
std::optional<ModelCheck> check_weights(const fs::path& folder, const std::string& at,
                                        bool& has_weights) {
  std::vector<fs::path> indexes;
  std::vector<fs::path> weights;
  std::error_code ec;
  size_t entries = 0;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (++entries > kMaxFolderEntries) break;
    const std::string name = it->path().filename().string();
    if (name[0] == '.') continue;
    if (name.ends_with(".safetensors.index.json")) indexes.push_back(it->path());
    if (name.ends_with(".safetensors")) weights.push_back(it->path());
  }
  std::ranges::sort(indexes);
  std::ranges::sort(weights);
  for (const fs::path& index : indexes) {
    const Json json = parse_json_file(index, kMaxIndexBytes);
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (map == json.end() || !map->is_object()) continue;
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : map->items()) {
      if (!shard.is_string() || !is_relative_path(shard.get_ref<const std::string&>())) {
        const std::string file = at + index.filename().string();
        return ModelCheck{ModelState::kDamaged, file, file + " names a shard outside its folder"};
      }
      shards.insert(shard.get<std::string>());
    }
    for (const std::string& shard : shards) {
      if (!is_there(folder / shard)) {
        return incomplete(at + shard, at + shard + " is missing, which " + at +
                                          index.filename().string() + " names");
      }
    }
  }
  has_weights = !weights.empty();
  for (const fs::path& file : weights) {
    const std::string name = at + file.filename().string();
    try {
      read_safetensors_header(file);
    } catch (const Error& error) {
      const bool cut = error.info().code == "weights_truncated";
      return ModelCheck{cut ? ModelState::kIncomplete : ModelState::kDamaged, name,
                        name + (cut ? " is truncated" : " is damaged: " + error.info().message)};
    }
  }
  return std::nullopt;
}

// Components that model_index.json names: {"vae": ["diffusers", "AutoencoderKL"], ...}.
std::set<std::string> stated_components(const fs::path& root) {
  std::set<std::string> names;
  const fs::path index = root / "model_index.json";
  if (!is_there(index)) return names;
  const Json json = parse_json_file(index, kMaxConfigBytes);
  if (!json.is_object()) return names;
  for (const auto& [name, value] : json.items()) {
    const bool is_component = value.is_array() && value.size() == 2 && value[0].is_string() &&
                              value[1].is_string() && is_model_id(name);
    if (is_component) names.insert(name);
  }
  return names;
}

ModelCheck check_layout(const ModelRoot& model) {
  std::set<std::string> components = stated_components(model.path);
  const bool is_diffusers = !components.empty();
  if (std::ranges::count(kComponentFamilies, model.manifest.family) > 0) {
    components.insert({"text_encoder", "tokenizer", "transformer", "vae"});
  }
  for (const auto& [name, path] : model.component_paths) components.insert(name);
  bool has_weights = false;
  if (auto check = check_weights(model.path, "", has_weights)) return *check;
  for (const std::string& name : components) {
    const fs::path folder = model.component(name);
    const std::string shown = folder.filename().string() + "/";
    if (!is_folder(folder)) return incomplete(shown, "component " + shown + " is missing");
    if (std::ranges::count(kWeightComponents, name) == 0) continue;
    if (auto check = check_weights(folder, shown, has_weights)) return *check;
    if (!has_weights) return incomplete(shown, shown + " holds no weights");
    if (is_diffusers && !is_there(folder / "config.json")) {
      return incomplete(shown + "config.json", shown + "config.json is missing");
    }
  }
  return {};
}

}  // namespace

std::string_view state_name(ModelState state) {
  switch (state) {
    case ModelState::kComplete:
      return "complete";
    case ModelState::kIncomplete:
      return "incomplete";
    case ModelState::kDamaged:
      return "damaged";
  }
  return "damaged";
}

fs::path installed_file(const ModelRoot& model, const std::string& path) {
  const fs::path relative(path);
  if (!relative.has_parent_path()) return model.path / relative;
  return resolve_inside(model.path, relative.parent_path().string()) / relative.filename();
}

ModelCheck check_model(const fs::path& folder) {
  try {
    const ModelRoot model = open_model_root(folder);
    for (const InstalledFile& file : model.files) {
      if (auto check = check_file(model, file)) return *check;
    }
    return model.files.empty() ? check_layout(model) : ModelCheck{};
  } catch (const Error& error) {
    const bool incomplete = error.info().code == "model_incomplete";
    return {incomplete ? ModelState::kIncomplete : ModelState::kDamaged, "", error.info().message};
  } catch (const std::exception& error) {
    return {ModelState::kDamaged, "", printable(error.what())};
  }
}

void check_installed_files(const ModelRoot& model) {
  for (const InstalledFile& file : model.files) {
    const auto check = check_file(model, file);
    if (!check) continue;
    throw IoError{{"model_incomplete", check->file,
                   "model " + model.manifest.id + " is incomplete: " + check->problem,
                   "mere.run model pull " + model.manifest.id}};
  }
}

}  // namespace mere
