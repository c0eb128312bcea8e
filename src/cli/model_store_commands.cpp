// model verify, remove, storage, gc, repair-manifests: the files of installed models.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "catalog/hub_cache.h"
#include "catalog/store.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/terminal_progress.h"
#include "core/system.h"

namespace mere::cli {
namespace {

struct StoreOptions {
  std::string id;
  bool force = false;
  bool keep_cache = false;
  bool dry_run = false;
  bool json = false;
};

// What every command of this file works on.
struct Store {
  StorePlaces places;
  fs::path hub;
};

Document completed(Document document) {
  document["version"] = version();
  return document;
}

// ---- verify -------------------------------------------------------------------------------------

std::vector<StoredModel> models_to_verify(const std::string& id, const Store& store) {
  if (id.empty()) return list_models(store.places, Measure::kNo);
  if (auto model = find_model(id, store.places, Measure::kNo)) return {*std::move(model)};
  throw UsageError{{"model_not_installed", "ID",
                    "model \"" + printable(id) + "\" is not installed: looked in " +
                        store.places.models_dir.string(),
                    "mere.run model list shows what there is"}};
}

int run_verify(const StoreOptions& options, const Store& store, TerminalProgress& progress) {
  const InterruptGuard interrupt(progress, false);
  bool failed = false;
  Document list = Document::array();
  for (const StoredModel& model : models_to_verify(options.id, store)) {
    const VerifyResult result = verify_model(model, progress);
    failed = failed || result.status == "failed";
    Document problems = Document::array();
    std::string text = shown(result.id) + ": " + result.status;
    if (result.files > 0) {
      text += ", " + std::to_string(result.files) + " files, " + human_bytes(result.bytes);
    }
    text += "\n";
    for (const VerifyProblem& problem : result.problems) {
      problems.push_back({{"file", problem.file}, {"problem", problem.problem}});
      text += "  " + shown(problem.file) + " " + shown(problem.problem) + "\n";
    }
    if (!result.problems.empty()) {
      text += "  fetch what is wrong with: mere.run model pull " + shown(result.id) + " --force\n";
    }
    list.push_back({{"id", result.id},
                    {"path", result.path.string()},
                    {"status", result.status},
                    {"files", result.files},
                    {"bytes", result.bytes},
                    {"problems", problems}});
    if (!options.json) print_result(text);
  }
  if (options.json) {
    print_document(completed({{"status", failed ? "failed" : "completed"}, {"models", list}}));
  }
  return failed ? 1 : 0;
}

// ---- remove -------------------------------------------------------------------------------------

int run_remove(const StoreOptions& options, const Store& store, TerminalProgress&) {
  const RemoveResult result =
      remove_model(options.id, store.places, store.hub,
                   {.force = options.force, .keep_cache = options.keep_cache});
  if (options.json) {
    print_document(completed({{"status", "completed"},
                              {"id", result.id},
                              {"was_installed", result.was_installed},
                              {"reclaimed_bytes", result.reclaimed_bytes},
                              {"kept_bytes", result.kept_bytes},
                              {"partial_files", result.partial_files},
                              {"kept_for", result.kept_for}}));
    return 0;
  }
  std::string text = (result.was_installed ? "removed " : "removed what was left of ") +
                     shown(result.id) + ": " + human_bytes(result.reclaimed_bytes) + " reclaimed";
  if (result.kept_bytes > 0) {
    text += ", " + human_bytes(result.kept_bytes) + " kept";
    for (const std::string& id : result.kept_for) {
      text += (id == result.kept_for.front() ? " for " : ", ") + shown(id);
    }
  }
  print_result(text + "\n");
  return 0;
}

// ---- storage, gc --------------------------------------------------------------------------------

int run_storage(const StoreOptions& options, const Store& store, TerminalProgress&) {
  const StorageReport report = measure_storage(store.places, store.hub);
  Document models = Document::array();
  std::vector<std::vector<std::string>> rows = {{"MODEL", "SIZE", "ITS ALONE"}};
  for (const ModelStorage& model : report.models) {
    models.push_back(
        {{"id", model.id}, {"bytes", model.bytes}, {"exclusive_bytes", model.exclusive_bytes}});
    rows.push_back({shown(model.id), human_bytes(model.bytes), human_bytes(model.exclusive_bytes)});
  }
  if (options.json) {
    print_document(completed({{"status", "completed"},
                              {"models_dir", report.models_dir.string()},
                              {"hub_cache", report.hub.string()},
                              {"models", models},
                              {"model_bytes", report.model_bytes},
                              {"payload_bytes", report.payload_bytes},
                              {"partial_bytes", report.partial_bytes},
                              {"unreferenced_bytes", report.unreferenced_bytes},
                              {"total_bytes", report.total_bytes}}));
    return 0;
  }
  std::string text = rows.size() > 1 ? table_text(rows, stdout_columns()) : "";
  text += "models, what they share once: " + human_bytes(report.model_bytes) + "\n";
  text += "downloaded files: " + human_bytes(report.payload_bytes) + " in " +
          shown(report.hub.string()) + "\n";
  text += "parts of downloads: " + human_bytes(report.partial_bytes) + "\n";
  text += "used by no model: " + human_bytes(report.unreferenced_bytes) + "\n";
  text += "total: " + human_bytes(report.total_bytes) + "\n";
  print_result(text);
  return 0;
}

int run_gc(const StoreOptions& options, const Store& store, TerminalProgress&) {
  const GcResult result = collect_garbage(store.places, store.hub, options.force);
  Document items = Document::array();
  std::string text;
  for (const GcItem& item : result.items) {
    items.push_back({{"kind", item.kind}, {"path", item.path.string()}, {"bytes", item.bytes}});
    text += item.kind + "  " + human_bytes(item.bytes) + "  " + shown(item.path.string()) + "\n";
  }
  if (options.json) {
    print_document(completed({{"status", "completed"},
                              {"removed", result.removed},
                              {"items", items},
                              {"bytes", result.bytes},
                              {"too_young", result.young},
                              {"shared_cache", result.shared}}));
    return 0;
  }
  text +=
      human_bytes(result.bytes) + (result.removed ? " reclaimed" : " could be reclaimed") + "\n";
  if (result.young > 0) {
    text += std::to_string(result.young) + " items were changed within the last hour and stay\n";
  }
  if (result.shared) {
    text += "the cache belongs to other programs too: only parts of downloads are looked at\n";
  }
  if (!result.removed && !result.items.empty()) text += "remove with: mere.run model gc --force\n";
  print_result(text);
  return 0;
}

// ---- repair-manifests ---------------------------------------------------------------------------

int run_repair(const StoreOptions& options, const Store& store, TerminalProgress&) {
  const auto items = repair_manifests(store.places, options.dry_run);
  Document list = Document::array();
  std::string text;
  bool failed = false;
  for (const RepairItem& item : items) {
    failed = failed || item.action == "failed";
    list.push_back({{"id", item.id},
                    {"path", item.path.string()},
                    {"action", item.action},
                    {"family", item.family},
                    {"problem", item.problem}});
    text += shown(item.id) + ": " + item.action + (item.problem.empty() ? "" : ": ") +
            shown(item.problem) + "\n";
  }
  if (options.json) {
    print_document(completed({{"status", failed ? "failed" : "completed"},
                              {"dry_run", options.dry_run},
                              {"models", list}}));
  } else {
    print_result(text.empty() ? "no models in " + store.places.models_dir.string() + "\n" : text);
  }
  return failed ? 1 : 0;
}

using Run = int (*)(const StoreOptions&, const Store&, TerminalProgress&);

CLI::App& add_command(CLI::App& model, const char* name, const char* help,
                      const std::shared_ptr<StoreOptions>& options, Context& context, Run run) {
  CLI::App& command = *model.add_subcommand(name, help);
  command.add_flag("--json", options->json, "Print one JSON document; errors too");
  command.callback([options, &context, run] {
    context.action = [options, &context, run] {
      TerminalProgress progress(ProgressStyle::kHuman);
      const Store store{store_places(context.named_models_dir(progress)), hub_cache_dir()};
      return run(*options, store, progress);
    };
  });
  return command;
}

}  // namespace

void add_model_store_commands(CLI::App& model, Context& context) {
  auto options = std::make_shared<StoreOptions>();
  add_command(model, "verify", "Hash every file of installed models", options, context, run_verify)
      .add_option("ID", options->id, "Id or folder of a model (default: all)")
      ->type_name("");

  options = std::make_shared<StoreOptions>();
  CLI::App& remove = add_command(model, "remove", "Remove a model and files that no other has",
                                 options, context, run_remove);
  remove.add_option("ID", options->id, "Id of the model")->required()->type_name("");
  remove.add_flag("--force", options->force, "Also a folder that was not pulled");
  remove.add_flag("--keep-cache", options->keep_cache, "Leave the downloaded files");

  options = std::make_shared<StoreOptions>();
  add_command(model, "storage", "Show how much models take", options, context, run_storage);

  options = std::make_shared<StoreOptions>();
  add_command(model, "gc", "Show, or with --force remove, downloaded files that no model has",
              options, context, run_gc)
      .add_flag("--force", options->force, "Remove them");

  options = std::make_shared<StoreOptions>();
  add_command(model, "repair-manifests", "Write missing manifests of models that are recognised",
              options, context, run_repair)
      .add_flag("--dry-run", options->dry_run, "Say what would be written");
}

}  // namespace mere::cli
