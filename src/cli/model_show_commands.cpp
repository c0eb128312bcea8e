// model list, model info, model capabilities: what there is, and nothing is changed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "catalog/catalog.h"
#include "catalog/store.h"
#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/terminal_progress.h"
#include "core/system.h"
#include "engine/families.h"

namespace mere::cli {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

struct ShowOptions {
  std::string id;
  bool all = false;
  bool measure = false;
  bool components = false;
  bool recommended = false;
  bool json = false;
};

Document or_null(const std::string& text) {
  return text.empty() ? Document(nullptr) : Document(text);
}

template <typename T>
Document or_null(const std::optional<T>& value) {
  return value ? Document(*value) : Document(nullptr);
}

bool runs_here(const std::string& family) { return find_image_family(family) != nullptr; }

// A family may come in a packing of its own that is not read yet.
bool runs_here(const CatalogModel& model) {
  return runs_here(model.family) &&
         (!model.quantization || model.quantization->scheme == "mlx-quantized-linear");
}

std::string bytes_text(const std::optional<int64_t>& bytes) {
  return bytes ? human_bytes(*bytes) : "?";
}

// ---- list ---------------------------------------------------------------------------------------

Document stored_document(const StoredModel& model) {
  const bool complete = model.check.state == ModelState::kComplete;
  return {{"id", model.id},
          {"installed", complete},
          {"state", state_name(model.check.state)},
          {"problem", or_null(model.check.problem)},
          {"file", or_null(model.check.file)},
          {"category", or_null(model.category)},
          {"family", or_null(model.family)},
          {"runs_here", runs_here(model.family)},
          {"place", place_name(model.place)},
          {"path", model.path.string()},
          {"bytes", or_null(model.bytes)}};
}

Document catalog_document(const CatalogModel& model) {
  return {{"id", model.id},
          {"installed", false},
          {"category", model.category},
          {"family", or_null(model.family)},
          {"runs_here", runs_here(model)},
          {"summary", model.summary},
          {"repository",
           or_null(model.sources.empty() ? std::string() : model.sources.front().repository)},
          {"license", or_null(model.license)},
          {"restricted", model.restricted()},
          {"needs_token", model.needs_token},
          {"download_bytes", or_null(model.download_bytes)},
          {"supported", has_memory_gb(physical_memory_bytes(), model.min_memory_gb)}};
}

// The catalog's models that are not among `stored`.
std::vector<const CatalogModel*> absent_models(const std::vector<StoredModel>& stored,
                                               bool hidden) {
  std::vector<const CatalogModel*> models;
  for (const CatalogModel& model : catalog_models()) {
    const bool is_stored = std::ranges::find(stored, model.id, &StoredModel::id) != stored.end();
    if (!is_stored && (hidden || !model.hidden)) models.push_back(&model);
  }
  return models;
}

std::string availability(const CatalogModel& model) {
  if (model.sources.empty()) return "no public source";
  if (!has_memory_gb(physical_memory_bytes(), model.min_memory_gb)) {
    return "needs " + std::to_string(model.min_memory_gb) + " GB of memory";
  }
  if (model.restricted()) return "licence to accept";
  return model.needs_token ? "needs a token" : "";
}

int run_list(const ShowOptions& options, const StorePlaces& places) {
  const auto stored = list_models(places, options.measure ? Measure::kYes : Measure::kNo);
  const auto absent = absent_models(stored, options.all);
  if (options.json) {
    Document models = Document::array();
    for (const StoredModel& model : stored) models.push_back(stored_document(model));
    for (const CatalogModel* model : absent) models.push_back(catalog_document(*model));
    print_document({{"status", "completed"},
                    {"models_dir", places.models_dir.string()},
                    {"models", models},
                    {"version", version()}});
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"INSTALLED", "", "", ""}};
  for (const StoredModel& model : stored) {
    std::string state = model.check.state == ModelState::kComplete
                            ? (runs_here(model.family) ? "" : "not run by this version")
                            : std::string(state_name(model.check.state)) + ": " +
                                  shown(model.check.file) + " " + shown(model.check.problem);
    rows.push_back({shown(model.id), model.category, bytes_text(model.bytes), std::move(state)});
  }
  rows.push_back({"AVAILABLE", "", "", ""});
  int others = 0;
  for (const CatalogModel* model : absent) {
    if (!options.all && !runs_here(*model)) {
      ++others;
      continue;
    }
    const std::string why = availability(*model);
    rows.push_back({model->id, model->category, bytes_text(model->download_bytes),
                    model->summary + (why.empty() ? "" : "; " + why)});
  }
  std::string text = table_text(rows, stdout_columns());
  if (others > 0) {
    text += std::to_string(others) + " more that this version does not run yet: --all\n";
  }
  print_result(text);
  return 0;
}

// ---- info ---------------------------------------------------------------------------------------

Document terms_document(const std::vector<UsageTerms>& terms) {
  Document list = Document::array();
  for (const UsageTerms& t : terms) {
    list.push_back({{"component", t.component},
                    {"license", t.license},
                    {"summary", t.summary},
                    {"license_url", t.license_url}});
  }
  return list;
}

Document info_document(const StoredModel& model, const CatalogModel* known, bool components) {
  Document document = stored_document(model);
  document["summary"] = known == nullptr ? Document(nullptr) : Document(known->summary);
  document["license"] = known == nullptr ? Document(nullptr) : or_null(known->license);
  document["sources"] = Document::array();
  document["terms_accepted"] = Document::array();
  document["defaults"] = Document::object();
  document["supports"] = Document::array();
  if (components) document["components"] = Document::object();
  try {
    const ModelRoot root = open_model_root(model.path);
    for (const InstalledSource& source : root.sources) {
      document["sources"].push_back({{"role", source.role},
                                     {"repository", source.repository},
                                     {"revision", source.revision}});
    }
    document["terms_accepted"] = terms_document(root.terms);
    const Manifest& m = root.manifest;
    document["variant"] = or_null(m.variant);
    document["precision"] = or_null(m.precision);
    document["defaults"] = {{"steps", or_null(m.steps)},
                            {"cfg", or_null(m.cfg)},
                            {"sigma_shift", or_null(m.sigma_shift)}};
    document["supports"] = m.supports;
    document["files"] = root.files.size();
    if (components) {
      for (const char* name : {"tokenizer", "text_encoder", "transformer", "vae", "scheduler"}) {
        const fs::path folder = root.component(name);
        std::error_code ec;
        document["components"][name] =
            fs::exists(folder, ec) ? Document(folder.string()) : Document(nullptr);
      }
    }
  } catch (const Error& e) {
    document["problem"] = e.what();
  }
  return document;
}

// "key: value" lines of a document's plain members.
std::string lines_of(const Document& document) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : document.items()) {
    if (value.is_null() || ((value.is_array() || value.is_object()) && value.empty())) continue;
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (key == "bytes" || key == "download_bytes") text = human_bytes(value.get<int64_t>());
    rows.push_back({key + ":", shown(text)});
  }
  return table_text(rows);
}

int run_info(const ShowOptions& options, const StorePlaces& places) {
  const CatalogModel* known = find_catalog_model(options.id);
  const auto stored = find_model(options.id, places, Measure::kYes);
  if (!stored && known == nullptr) {
    throw UsageError{{"model_unknown", "ID", "no model \"" + printable(options.id) + "\"",
                      "mere.run model list shows what there is"}};
  }
  Document document;
  if (stored) {
    if (known == nullptr) known = find_catalog_model(stored->id);
    document = info_document(*stored, known, options.components);
  } else {
    document = catalog_document(*known);
    document["terms"] = terms_document(known->terms);
    document["min_memory_gb"] = known->min_memory_gb;
    document["recommended_memory_gb"] = known->recommended_memory_gb;
    document["supports"] = known->supports;
  }
  if (options.json) {
    document["version"] = version();
    print_document(document);
  } else {
    print_result(lines_of(document));
  }
  return 0;
}

// ---- capabilities -------------------------------------------------------------------------------

int run_capabilities(const ShowOptions& options) {
  const int64_t memory = physical_memory_bytes();
  Document models = Document::array();
  std::vector<std::vector<std::string>> rows = {{"MODEL", "MIN", "RECOMMENDED", "THIS MACHINE"}};
  for (const CatalogModel& model : catalog_models()) {
    if (model.hidden && !options.all) continue;
    const bool supported = has_memory_gb(memory, model.min_memory_gb);
    const bool recommended = supported && has_memory_gb(memory, model.recommended_memory_gb);
    if (!options.all && !supported) continue;
    if (options.recommended && !recommended) continue;
    const std::string reason =
        supported ? ""
                  : "requires at least " + std::to_string(model.min_memory_gb) +
                        " GB of memory; detected " + std::to_string(memory / kGiB) + " GB";
    models.push_back({{"id", model.id},
                      {"category", model.category},
                      {"family", or_null(model.family)},
                      {"runs_here", runs_here(model)},
                      {"min_memory_gb", model.min_memory_gb},
                      {"recommended_memory_gb", model.recommended_memory_gb},
                      {"supported", supported},
                      {"recommended", recommended},
                      {"setup", model.setup},
                      {"supports", model.supports},
                      {"reason", or_null(reason)}});
    const auto gb = [](int value) { return value == 0 ? "?" : std::to_string(value) + " GB"; };
    rows.push_back({model.id, gb(model.min_memory_gb), gb(model.recommended_memory_gb),
                    std::string(supported ? (recommended ? "recommended" : "supported") : reason) +
                        (runs_here(model) ? "" : "; not run by this version")});
  }
  if (options.json) {
    print_document({{"status", "completed"},
                    {"memory_gb", memory / kGiB},
                    {"models", models},
                    {"version", version()}});
  } else {
    print_result(table_text(rows, stdout_columns()));
  }
  return 0;
}

using Run = int (*)(const ShowOptions&, const StorePlaces&);

void set_action(CLI::App& command, const std::shared_ptr<ShowOptions>& options, Context& context,
                Run run) {
  command.add_flag("--json", options->json, "Print one JSON document; errors too");
  command.callback([options, &context, run] {
    context.action = [options, &context, run] {
      TerminalProgress progress(ProgressStyle::kHuman);
      return run(*options, store_places(context.named_models_dir(progress)));
    };
  });
}

}  // namespace

void add_model_show_commands(CLI::App& model, Context& context) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* list = model.add_subcommand("list", "Show installed models and those to download");
  list->add_flag("--measure-sizes", options->measure,
                 "Add up the files instead of trusting manifests");
  list->add_flag("--all", options->all,
                 "Also models that this version does not run, and hidden ones");
  set_action(*list, options, context, run_list);

  options = std::make_shared<ShowOptions>();
  CLI::App* info = model.add_subcommand("info", "Show what is known of one model");
  info->add_option("ID", options->id, "Id, repository, or folder of a model")
      ->required()
      ->type_name("");
  info->add_flag("--components", options->components, "Also where each component lies");
  set_action(*info, options, context, run_info);

  options = std::make_shared<ShowOptions>();
  CLI::App* capabilities =
      model.add_subcommand("capabilities", "Show which models this machine has the memory for");
  capabilities->add_flag("--all", options->all, "Also those that it has not, and hidden ones");
  capabilities->add_flag("--recommended", options->recommended,
                         "Only those that it has the recommended memory for");
  set_action(*capabilities, options, context,
             [](const ShowOptions& o, const StorePlaces&) { return run_capabilities(o); });
}

}  // namespace mere::cli
