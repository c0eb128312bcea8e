#include <CLI/CLI.hpp>
#include <memory>

#include "catalog/model_root.h"
#include "catalog/pull.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/pull_progress.h"
#include "core/system.h"
#include "engine/families.h"

namespace mere::cli {
namespace {

struct PullOptions {
  std::string id;
  std::string cache_dir;
  bool all = false;
  bool force = false;
  bool quiet = false;
  bool allow_unsupported = false;
  bool accept_license = false;
  bool preflight = false;
  bool json = false;
  bool progress_json = false;
};

PullRequest pull_request(const PullOptions& options, const Context& context, Progress& progress) {
  PullRequest request;
  // Unlike what reads models, a pull makes the folder.
  const fs::path chosen = context.models_root;
  request.models_dir = fs::absolute(chosen.empty() ? default_models_dir() : chosen);
  request.hub_dir = options.cache_dir.empty() ? hub_cache_dir() : fs::absolute(options.cache_dir);
  request.access = hub_access(progress);
  request.force = options.force;
  request.allow_unsupported = options.allow_unsupported;
  request.accept_license = options.accept_license;
  return request;
}

std::vector<const CatalogModel*> chosen_models(const PullOptions& options) {
  if (options.id.empty() == !options.all) {
    throw UsageError{
        {"usage", "ID", "give the id of one model, or --all", "see mere.run model pull --help"}};
  }
  std::vector<const CatalogModel*> models;
  if (options.all) {
    for (const CatalogModel& model : catalog_models()) {
      if (!model.hidden) models.push_back(&model);
    }
    return models;
  }
  const CatalogModel* model = find_catalog_model(options.id);
  if (model == nullptr) {
    throw UsageError{{"model_unknown", "ID",
                      "no model \"" + printable(options.id) + "\" in the catalog",
                      "mere.run model list shows what there is"}};
  }
  return {model};
}

// ---- Preflight ----------------------------------------------------------------------------------

Document blockers_document(const std::vector<PullBlocker>& blockers) {
  Document list = Document::array();
  for (const PullBlocker& blocker : blockers) {
    list.push_back({{"code", blocker.code}, {"message", blocker.message}, {"hint", blocker.hint}});
  }
  return list;
}

Document plan_document(const PullPlan& plan) {
  const CatalogModel& model = *plan.model;
  Document document = {{"id", model.id},
                       {"status", !plan.blockers.empty() ? "blocked"
                                  : plan.installed       ? "installed"
                                                         : "ready"},
                       {"path", plan.destination.string()},
                       {"sources", Document::array()}};
  for (size_t i = 0; i < model.sources.size(); ++i) {
    const HubSource& source = model.sources[i];
    document["sources"].push_back(
        {{"repository", source.repository},
         {"revision", source.revision},
         {"commit", i < plan.commits.size() ? Document(plan.commits[i]) : Document(nullptr)},
         {"mount", source.mount}});
  }
  const auto known = [&](int64_t number) {
    return plan.listed ? Document(number) : Document(nullptr);
  };
  document["files"] = known(static_cast<int64_t>(plan.files.size()));
  document["bytes"] = known(plan.total_bytes);
  document["bytes_to_fetch"] = known(plan.fetch_bytes);
  document["estimated_bytes"] =
      model.download_bytes ? Document(*model.download_bytes) : Document(nullptr);
  document["disk_needed_bytes"] = known(plan.disk_need_bytes);
  document["disk_free_bytes"] = known(plan.disk_free_bytes);
  document["companions"] = model.companions;
  document["blockers"] = blockers_document(plan.blockers);
  document["warnings"] = plan.warnings;
  return document;
}

void print_plan(const PullPlan& plan) {
  std::string text = plan.model->id + ": ";
  if (plan.installed) {
    text += "is here already, at " + plan.destination.string() + "\n";
  } else if (plan.listed) {
    text += std::to_string(plan.files.size()) + " files, " + human_bytes(plan.total_bytes) + ", " +
            human_bytes(plan.fetch_bytes) + " to fetch\n";
  } else {
    text += "the hub was not asked\n";
  }
  for (const std::string& warning : plan.warnings) text += "  warning: " + warning + "\n";
  for (const PullBlocker& blocker : plan.blockers) {
    text += "  blocked: " + blocker.message + " (" + blocker.hint + ")\n";
  }
  print_result(text);
}

int run_preflight(const PullOptions& options, const std::vector<const CatalogModel*>& models,
                  const PullRequest& request, PullProgress& progress) {
  bool blocked = false;
  Document document = {{"status", "ready"}, {"mode", "preflight"}, {"models", Document::array()}};
  for (const CatalogModel* model : models) {
    const PullPlan plan = plan_pull(*model, request, progress);
    blocked = blocked || (!plan.blockers.empty() && !options.all);
    if (options.json) {
      document["models"].push_back(plan_document(plan));
    } else {
      print_plan(plan);
    }
  }
  if (options.json) {
    document["status"] = blocked ? "blocked" : "ready";
    Document command = {"mere.run", "model", "pull"};
    command.push_back(options.all ? "--all" : models.front()->id);
    document["actions"] = {{{"id", options.all ? "pull-models" : "pull-model"},
                            {"kind", "command"},
                            {"enabled", !blocked},
                            {"command", {{"argv", command}}}}};
    document["version"] = version();
    print_document(document);
  }
  return blocked ? 1 : 0;
}

// ---- Pull ---------------------------------------------------------------------------------------

// A pull ends by opening the model as `image generate` would; a family of a later version is said.
void check_usable(const CatalogModel& model, const fs::path& models_dir, PullProgress& progress) {
  if (model.category != "image") return;
  const ModelRoot root = resolve_image_model(model.id, models_dir, image_family_names());
  const ImageFamily* family = find_image_family(root.manifest.family);
  if (family == nullptr) {
    progress.note(model.id + ": this version cannot draw with the family " + root.manifest.family +
                  " yet");
    return;
  }
  family->describe(root);
}

Document pulled_document(const PulledModel& model) {
  return {{"id", model.id},
          {"status", model.already_there ? "already_installed" : "installed"},
          {"path", model.path.string()},
          {"files", model.already_there ? Document(nullptr) : Document(model.files)},
          {"bytes", model.already_there ? Document(nullptr) : Document(model.total_bytes)},
          {"fetched_bytes", model.fetched_bytes},
          {"commits", model.commits}};
}

// What pulled_document() gets told of models that were left out.
struct Outcome {
  Document models = Document::array();
  std::vector<fs::path> paths{};
  bool failed = false;
};

void pull_chosen(const CatalogModel& model, const PullRequest& request, PullProgress& progress,
                 Outcome& outcome) {
  progress.set_model(model.id);
  for (const PulledModel& pulled : pull_model(model, request, progress)) {
    const CatalogModel* entry = find_catalog_model(pulled.id);
    if (entry != nullptr && !pulled.already_there) {
      check_usable(*entry, request.models_dir, progress);
    }
    outcome.models.push_back(pulled_document(pulled));
  }
  outcome.paths.push_back(request.models_dir / model.id);
}

// True when `model` is left out of what was asked for, which has been said then.
bool is_skipped(const CatalogModel& model, const PullOptions& options, const PullRequest& request,
                PullProgress& progress, Outcome& outcome) {
  const auto blockers = local_blockers(model, request);
  if (blockers.empty()) return false;
  // A model without a source is no mistake of the caller; the other reasons are, for one model.
  if (!options.all && blockers.front().code != "no_public_source") return false;
  progress.note(model.id + ": skipped: " + blockers.front().message);
  outcome.models.push_back({{"id", model.id},
                            {"status", "skipped"},
                            {"reason", blockers.front().code},
                            {"message", blockers.front().message}});
  return true;
}

int run_pull(const PullOptions& options, Context& context, PullProgress& progress) {
  const auto models = chosen_models(options);
  const PullRequest request = pull_request(options, context, progress);
  const InterruptGuard interrupt(progress, false);
  if (options.preflight) return run_preflight(options, models, request, progress);
  Outcome outcome;
  for (const CatalogModel* model : models) {
    if (is_skipped(*model, options, request, progress, outcome)) continue;
    try {
      pull_chosen(*model, request, progress, outcome);
    } catch (const Cancelled&) {
      progress.note("stopped; the same command goes on where it was");
      throw;
    } catch (const Error& e) {
      if (!options.all) throw;
      outcome.failed = true;
      progress.warn(model->id + ": " + e.what());
      outcome.models.push_back(
          {{"id", model->id}, {"status", "error"}, {"error", error_document(e.info())["error"]}});
    }
  }
  progress.finish_line();
  if (options.json) {
    print_document({{"status", outcome.failed ? "failed" : "completed"},
                    {"models", outcome.models},
                    {"warnings", progress.warnings()},
                    {"version", version()}});
  } else {
    for (const fs::path& path : outcome.paths) print_result(path.string() + "\n");
  }
  return outcome.failed ? 1 : 0;
}

int run_reporting(const PullOptions& options, Context& context) {
  PullProgress progress(options.progress_json ? ProgressStyle::kJson
                        : options.quiet       ? ProgressStyle::kQuiet
                                              : ProgressStyle::kHuman);
  try {
    return run_pull(options, context, progress);
  } catch (...) {
    context.warnings = progress.warnings();
    throw;
  }
}

}  // namespace

void add_model_pull_command(CLI::App& model, Context& context) {
  CLI::App* command = model.add_subcommand("pull", "Download a model of the catalog");
  const auto options = std::make_shared<PullOptions>();
  command->add_option("ID", options->id, "Id of the model, or its repository on the hub")
      ->type_name("");
  command->add_flag("--all", options->all,
                    "Every model that this machine can run and whose licence asks for nothing");
  command->add_flag("--force", options->force,
                    "Check every file again, fetch what is wrong, and install anew");
  command->add_flag("--allow-unsupported", options->allow_unsupported,
                    "Also with less memory than the model needs");
  command->add_flag("--accept-model-license,--accept-license-terms", options->accept_license,
                    "Accept the licence of a restricted model");
  command
      ->add_option_function<std::string>(
          "--cache-dir",
          [options](const std::string& text) {
            options->cache_dir = non_empty(text, "--cache-dir");
          },
          "Folder of the downloaded files (default: MERERUN_HUB_CACHE, else " +
              (app_support_dir() / "hub").string() + ")")
      ->type_name("DIR");
  command->add_flag("--preflight", options->preflight,
                    "Say what would be fetched and what stands in the way; write nothing");
  command->add_flag("--json", options->json, "Print one JSON document; errors too");
  command->add_flag("--progress-json", options->progress_json,
                    "Progress as one JSON object a line on stderr; wins over --quiet");
  command->add_flag("-q,--quiet", options->quiet, "No progress; warnings and errors remain");
  command->callback([options, &context] {
    context.action = [options, &context] { return run_reporting(*options, context); };
  });
}

}  // namespace mere::cli
