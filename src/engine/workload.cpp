#include "engine/workload.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/files.h"

namespace mere {
namespace {

constexpr int64_t kWithoutTicketBytes = kGib;
constexpr int64_t kLargeModelBytes = 48 * kGib;
constexpr int64_t kSmallModelBytes = 16 * kGib;
constexpr int kLargeMemoryGb = 64;

struct ClassRow {
  ResourceClass resource_class;
  std::string_view name;
  int64_t memory_bytes;
};
constexpr std::array<ClassRow, 3> kClasses = {{
    {ResourceClass::kSmall, "small", 6 * kGib},
    {ResourceClass::kStandard, "standard", 16 * kGib},
    {ResourceClass::kLarge, "large", 32 * kGib},
}};

// The first row that fits counts; "*" is every other subcommand, and none. What no row names
// (status, config, model list, api, run, plugin, ...) takes no ticket: it computes nothing, takes a
// ticket itself (api serve), or starts a program that takes one.
struct CommandRow {
  std::string_view group;
  std::string_view command;
  std::optional<ResourceClass> base;
};
constexpr std::optional<ResourceClass> kNone = std::nullopt;
constexpr CommandRow kCommands[] = {
    {"*", "list", kNone},
    {"image", "dataset", kNone},
    {"image", "info", kNone},
    {"image", "visualize-run", kNone},
    {"image", "reconstruct-3d", ResourceClass::kLarge},
    {"image", "reconstruct-3d-multiview", ResourceClass::kLarge},
    {"image", "reconstruct-3d-trellis2", ResourceClass::kLarge},
    {"image", "train-lora", ResourceClass::kLarge},
    {"image", "*", ResourceClass::kStandard},
    {"text", "train-lora", ResourceClass::kLarge},
    {"text", "*", ResourceClass::kStandard},
    {"speech", "*", ResourceClass::kSmall},
    {"audio", "*", ResourceClass::kSmall},
    {"vision", "geometry", ResourceClass::kLarge},
    {"vision", "geometry-multiview", ResourceClass::kLarge},
    {"vision", "image-to-3d", ResourceClass::kLarge},
    {"vision", "image-to-3d-trellis2", ResourceClass::kLarge},
    {"vision", "image-to-3d-multiview", ResourceClass::kLarge},
    {"vision", "depth-video", ResourceClass::kLarge},
    {"vision", "*", ResourceClass::kStandard},
    {"music", "train-adapter", ResourceClass::kLarge},
    // Standard, and small with a model that is known to be: what a base of small means.
    {"music", "*", ResourceClass::kSmall},
    {"sfx", "*", ResourceClass::kStandard},
    {"video", "*", ResourceClass::kLarge},
    {"world", "*", ResourceClass::kLarge},
    {"geo", "*", ResourceClass::kLarge},
    {"model", "benchmark", ResourceClass::kLarge},
    {"adapter", "pull", kNone},
    {"adapter", "*", ResourceClass::kStandard},
};

constexpr std::string_view kInspecting[] = {"--help",    "-h",          "--version",
                                            "--dry-run", "--preflight", "--materialize"};
// Looked for in names of models and engines only: a prompt with "words4" in it is no large job.
constexpr std::string_view kLargeNames[] = {"deepseek-v4", "ds4"};

std::optional<ResourceClass> base_of(std::string_view group, std::string_view command) {
  for (const CommandRow& row : kCommands) {
    if ((row.group == "*" || row.group == group) &&
        (row.command == "*" || row.command == command)) {
      return row.base;
    }
  }
  return kNone;
}

const ClassRow& row_of(ResourceClass resource_class) {
  return *std::ranges::find(kClasses, resource_class, &ClassRow::resource_class);
}

bool names_large_model(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::any_of(
      kLargeNames, [&](std::string_view name) { return text.find(name) != std::string::npos; });
}

// The value of option `name` that begins at arguments[i]: "--name VALUE" or "--name=VALUE".
std::optional<std::string> value_of(const std::vector<std::string>& arguments, size_t i,
                                    const std::string& name) {
  if (arguments[i] == name && i + 1 < arguments.size()) return arguments[i + 1];
  if (name.starts_with("--") && arguments[i].starts_with(name + "=")) {
    return arguments[i].substr(name.size() + 1);
  }
  return std::nullopt;
}

}  // namespace

std::string_view resource_class_name(ResourceClass resource_class) {
  return row_of(resource_class).name;
}

std::optional<ResourceClass> find_resource_class(std::string_view name) {
  const auto* row = std::ranges::find(kClasses, name, &ClassRow::name);
  return row == kClasses.end() ? std::nullopt : std::optional(row->resource_class);
}

Workload workload_of(const std::vector<std::string>& arguments) {
  Workload workload;
  std::vector<std::string> command;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    workload.inspects |= std::ranges::any_of(kInspecting, [&](std::string_view option) {
      return word == option || word.starts_with(std::string(option) + "=");
    });
    for (const char* name : {"--model", "-m"}) {
      if (const auto value = value_of(arguments, i, name)) workload.model = *value;
    }
    for (const char* name : {"--model", "-m", "--model-path", "--model-root", "--engine"}) {
      const auto value = value_of(arguments, i, name);
      workload.names_large_model |= value && names_large_model(*value);
    }
    if (word == "--models-root") {
      ++i;
    } else if (command.size() < 2 && !word.starts_with('-')) {
      command.push_back(word);
    }
  }
  command.resize(2);
  workload.label = command[0] + (command[1].empty() ? "" : " ") + command[1];
  workload.base = base_of(command[0], command[1]);
  return workload;
}

void add_catalog_facts(Workload& workload, const CatalogModel& model) {
  if (!workload.model_bytes) workload.model_bytes = model.download_bytes;
  workload.min_memory_gb = model.min_memory_gb;
  workload.names_large_model |= names_large_model(model.id);
}

void add_local_file(Workload& workload) {
  std::error_code ec;
  if (workload.model.empty() || !fs::is_regular_file(workload.model, ec)) return;
  const auto size = fs::file_size(workload.model, ec);
  if (!ec) workload.local_file_bytes = static_cast<int64_t>(size);
}

std::optional<ResourceClass> resource_class(const Workload& workload) {
  if (workload.inspects || !workload.base) return std::nullopt;
  if (workload.estimate_bytes && *workload.estimate_bytes < kWithoutTicketBytes) {
    return std::nullopt;
  }
  if (workload.names_large_model || workload.min_memory_gb >= kLargeMemoryGb ||
      workload.model_bytes.value_or(0) >= kLargeModelBytes ||
      workload.local_file_bytes.value_or(0) >= kLargeModelBytes) {
    return ResourceClass::kLarge;
  }
  if (workload.base != ResourceClass::kSmall) return workload.base;
  const std::optional<int64_t> known =
      workload.model_bytes ? workload.model_bytes : workload.estimate_bytes;
  return known && *known <= kSmallModelBytes ? ResourceClass::kSmall : ResourceClass::kStandard;
}

int capacity_permits(int64_t physical_bytes) {
  struct Row {
    int64_t below;
    int permits;
  };
  static constexpr Row kRows[] = {{48 * kGib, 1}, {96 * kGib, 2}, {192 * kGib, 4}};
  for (const Row& row : kRows) {
    if (physical_bytes < row.below) return row.permits;
  }
  return 6;
}

int permits_of(ResourceClass resource_class, int capacity) {
  switch (resource_class) {
    case ResourceClass::kSmall:
      return 1;
    case ResourceClass::kStandard:
      return std::min(2, capacity);
    case ResourceClass::kLarge:
      return capacity;
  }
  return capacity;
}

int64_t memory_needed(ResourceClass resource_class, const Workload& workload) {
  const int64_t minimum = row_of(resource_class).memory_bytes;
  return std::min(minimum, workload.estimate_bytes.value_or(minimum));
}

}  // namespace mere
