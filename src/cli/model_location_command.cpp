#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "catalog/catalog.h"
#include "catalog/model_root.h"
#include "catalog/names.h"
#include "catalog/store_places.h"
#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/terminal_progress.h"

namespace mere::cli {
namespace {

struct LocationOptions {
  std::string id;
  std::string path;
  bool accept_license = false;
  bool json = false;
};

bool is_folder(const fs::path& path) {
  std::error_code ec;
  return fs::is_directory(path, ec);
}

// Links keep their own name, for that is the id of the model that they lead to.
fs::path absolute_path(const std::string& text) {
  const fs::path path = fs::absolute(non_empty(text, "PATH")).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

fs::path existing_folder(const std::string& text) {
  const fs::path path = absolute_path(text);
  if (is_folder(path)) return path;
  throw UsageError{{"folder_not_found", "PATH", "PATH: no folder at " + path.string(), ""}};
}

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code ec;
  return a == b || fs::equivalent(a, b, ec);
}

// As the catalog spells it; ids that it does not know are the user's own.
std::string binding_id(const std::string& text) {
  if (const CatalogModel* known = find_catalog_model(text)) return known->id;
  const std::string id = trimmed(text);
  if (is_model_id(id)) return id;
  throw UsageError{{"model_id_invalid", "ID",
                    "ID: \"" + printable(text, 60) + "\" cannot be the id of a model",
                    "letters, digits, '.', '_' and '-'"}};
}

// What turns the locations off; empty when they are used.
std::string turned_off_by(const Context& context) {
  if (!context.models_root.empty()) return "--models-root";
  const char* variable = std::getenv("MERERUN_MODELS_DIR");
  return variable != nullptr && *variable != '\0' ? "MERERUN_MODELS_DIR" : "";
}

// ---- Answers ------------------------------------------------------------------------------------

// A location that is stored and not used would puzzle.
void tell_when_off(const Context& context, TerminalProgress& progress) {
  const std::string by = turned_off_by(context);
  if (by.empty()) return;
  progress.note(by + " names a models folder, so the locations are not used with it");
}

// `what`: the id, where there is one, and the path of a location.
int answer(const LocationOptions& options, const Context& context, const std::string& status,
           const std::string& sentence, const Document& what, TerminalProgress& progress) {
  if (options.json) {
    Document document = {{"status", status}};
    document.update(what);
    document["file"] = locations_path().string();
    document["turned_off_by"] = turned_off_by(context);
    document["warnings"] = progress.warnings();
    print_document(document);
    return 0;
  }
  print_result(sentence + "\n");
  tell_when_off(context, progress);
  return 0;
}

int print_list(const LocationOptions& options, const Context& context, const fs::path& models_dir,
               TerminalProgress& progress) {
  const ModelLocations locations = read_locations();
  const auto there = [](const fs::path& path) { return is_folder(path) ? "" : " (not there)"; };
  Document bindings = Document::array();
  Document roots = Document::array();
  std::string text = "models folder: " + shown(models_dir.string()) +
                     "\nlocations: " + shown(locations_path().string()) + "\n";
  for (const ModelBinding& binding : locations.bindings) {
    bindings.push_back({{"id", binding.id},
                        {"path", binding.path.string()},
                        {"exists", is_folder(binding.path)},
                        {"terms_accepted", binding.terms_accepted}});
    text += "  " + binding.id + " = " + shown(binding.path.string()) + there(binding.path) + "\n";
  }
  for (const fs::path& root : locations.roots) {
    roots.push_back({{"path", root.string()}, {"exists", is_folder(root)}});
    text += "  " + shown(root.string()) + there(root) + "\n";
  }
  if (bindings.empty() && roots.empty()) text += "  (none)\n";
  if (options.json) {
    print_document({{"file", locations_path().string()},
                    {"models_dir", models_dir.string()},
                    {"bindings", bindings},
                    {"roots", roots},
                    {"turned_off_by", turned_off_by(context)},
                    {"warnings", progress.warnings()}});
    return 0;
  }
  print_result(text);
  tell_when_off(context, progress);
  return 0;
}

// ---- Commands -----------------------------------------------------------------------------------

int run_list(const LocationOptions& options, const Context& context, TerminalProgress& progress) {
  return print_list(options, context, absolute_path(context.models_dir(progress).string()),
                    progress);
}

int run_add(const LocationOptions& options, const Context& context, TerminalProgress& progress) {
  const fs::path path = existing_folder(options.path);
  if (is_same(path, context.models_dir(progress))) {
    throw UsageError{{"location_is_store", "PATH",
                      path.string() + " is the models folder, which is always looked into", ""}};
  }
  fs::path stored = path;
  bool is_new = false;
  change_locations([&](ModelLocations& locations) {
    const auto same = std::ranges::find_if(locations.roots,
                                           [&](const auto& root) { return is_same(root, path); });
    is_new = same == locations.roots.end();
    if (is_new) {
      locations.roots.push_back(path);
    } else {
      stored = *same;
    }
  });
  return answer(options, context, is_new ? "added" : "unchanged",
                (is_new ? "Added " : "Already a location: ") + shown(stored.string()),
                {{"path", stored.string()}}, progress);
}

int run_remove(const LocationOptions& options, const Context& context, TerminalProgress& progress) {
  // It need not be there any more.
  const fs::path path = absolute_path(options.path);
  fs::path stored;
  change_locations([&](ModelLocations& locations) {
    auto& roots = locations.roots;
    // By name first: of two links to one folder the named one goes.
    auto it = std::ranges::find(roots, path);
    if (it == roots.end()) {
      it = std::ranges::find_if(roots, [&](const auto& root) { return is_same(root, path); });
    }
    if (it == roots.end()) {
      throw UsageError{{"location_unknown", "PATH", path.string() + " is no location",
                        "mere.run model location list shows them"}};
    }
    stored = *it;
    roots.erase(it);
  });
  return answer(options, context, "removed", "Removed " + shown(stored.string()),
                {{"path", stored.string()}}, progress);
}

void check_license(const CatalogModel& model, bool accepted) {
  if (!model.restricted() || accepted) return;
  const std::string pages = license_pages(model);
  throw UsageError{{"license_not_accepted", "--accept-model-license",
                    model.id + ": its licence restricts use: " + license_names(model),
                    (pages.empty() ? "" : "read " + pages + "; ") +
                        "--accept-model-license accepts " + license_names(model)}};
}

void check_is_model(const fs::path& folder) {
  try {
    open_model_root(folder);
  } catch (const UsageError& e) {
    ErrorInfo info = e.info();
    info.field = "PATH";  // this command has no --model
    throw UsageError{std::move(info)};
  }
}

// Adds `wanted`; false when it is there already.
bool add_binding(ModelLocations& locations, const ModelBinding& wanted) {
  for (ModelBinding& binding : locations.bindings) {
    if (lower(binding.id) != lower(wanted.id)) continue;
    if (!is_same(binding.path, wanted.path)) {
      throw UsageError{{"already_bound", "ID",
                        binding.id + " is already bound to " + binding.path.string(),
                        "first: mere.run model location unbind " + binding.id}};
    }
    const bool accepts = wanted.terms_accepted && !binding.terms_accepted;
    binding.terms_accepted = binding.terms_accepted || wanted.terms_accepted;
    return accepts;
  }
  locations.bindings.push_back(wanted);
  return true;
}

int run_bind(const LocationOptions& options, const Context& context, TerminalProgress& progress) {
  const std::string id = binding_id(options.id);
  const CatalogModel* known = find_catalog_model(id);
  if (known != nullptr) check_license(*known, options.accept_license);
  const fs::path path = existing_folder(options.path);
  check_is_model(path);
  const bool restricted = known != nullptr && known->restricted();
  bool is_new = false;
  change_locations([&](ModelLocations& locations) {
    is_new = add_binding(locations, {id, path, restricted && options.accept_license});
  });
  if (is_folder(context.models_dir(progress) / id)) {
    progress.warn(id + " is in the models folder too, and that one is used");
  }
  return answer(options, context, is_new ? "bound" : "unchanged",
                (is_new ? "Bound " : "Already bound: ") + id + " = " + shown(path.string()),
                {{"id", id}, {"path", path.string()}}, progress);
}

int run_unbind(const LocationOptions& options, const Context& context, TerminalProgress& progress) {
  const std::string id = binding_id(options.id);
  ModelBinding removed;
  change_locations([&](ModelLocations& locations) {
    const auto it = std::ranges::find_if(locations.bindings, [&](const ModelBinding& binding) {
      return lower(binding.id) == lower(id);
    });
    if (it == locations.bindings.end()) {
      throw UsageError{{"binding_unknown", "ID", id + " is not bound to a folder",
                        "mere.run model location list shows what is"}};
    }
    removed = *it;
    locations.bindings.erase(it);
  });
  return answer(options, context, "unbound",
                "Unbound " + removed.id + " = " + shown(removed.path.string()),
                {{"id", removed.id}, {"path", removed.path.string()}}, progress);
}

using Run = int (*)(const LocationOptions&, const Context&, TerminalProgress&);

int run_reporting(Run run, const LocationOptions& options, Context& context) {
  TerminalProgress progress(ProgressStyle::kHuman);
  try {
    return run(options, context, progress);
  } catch (...) {
    context.warnings = progress.warnings();
    throw;
  }
}

CLI::App* add_command(CLI::App& location, Context& context, const char* name, const char* help,
                      const std::shared_ptr<LocationOptions>& options, Run run) {
  CLI::App* command = location.add_subcommand(name, help);
  command->callback([options, run, &context] {
    context.action = [options, run, &context] { return run_reporting(run, *options, context); };
  });
  return command;
}

void add_json(CLI::App& command, const std::shared_ptr<LocationOptions>& options) {
  command.add_flag("--json", options->json, "Print one JSON document; errors too");
}

}  // namespace

void add_model_location_command(CLI::App& model, Context& context) {
  CLI::App* location = model.add_subcommand(
      "location", "Use models that lie elsewhere, without copying or changing them");
  const auto options = std::make_shared<LocationOptions>();
  const auto add_path = [&](CLI::App& command, const char* help) {
    command.add_option("PATH", options->path, help)->required()->type_name("");
  };
  const auto add_id = [&](CLI::App& command, const char* help) {
    command.add_option("ID", options->id, help)->required()->type_name("");
  };

  CLI::App* list = add_command(*location, context, "list",
                               "Print bound models, then folders of models, as they are looked up",
                               options, run_list);
  add_json(*list, options);

  CLI::App* add =
      add_command(*location, context, "add", "Look into a folder of models too", options, run_add);
  add_path(*add, "The folder; each folder in it is a model by its name");
  add_json(*add, options);

  CLI::App* remove =
      add_command(*location, context, "remove", "Look into a folder no more; the folder stays",
                  options, run_remove);
  add_path(*remove, "The folder, which need not be there any more");
  add_json(*remove, options);

  CLI::App* bind =
      add_command(*location, context, "bind", "Use a model's folder for an id", options, run_bind);
  add_id(*bind, "Id of the catalog, or one of your own");
  add_path(*bind, "The model's folder");
  bind->add_flag("--accept-model-license", options->accept_license,
                 "Accept the licence of a restricted model");
  add_json(*bind, options);

  CLI::App* unbind = add_command(*location, context, "unbind",
                                 "Undo a bind; the model's folder stays", options, run_unbind);
  add_id(*unbind, "The id");
  add_json(*unbind, options);
}

}  // namespace mere::cli
