#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>

#include "catalog/catalog.h"
#include "catalog/model_root.h"
#include "catalog/names.h"
#include "catalog/runtime_settings.h"
#include "catalog/store_places.h"
#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/terminal_progress.h"

namespace mere::cli {
namespace {

// ---- Values -------------------------------------------------------------------------------------

std::string parse_id(const std::string& text, const char* flag) {
  if (is_model_id(text)) return text;
  throw UsageError{{"value_invalid", flag,
                    std::string(flag) + ": \"" + printable(text, 60) + "\" is not a legal name",
                    "letters, digits, '.', '_' and '-'"}};
}

int64_t parse_count(const std::string& text, const char* flag) {
  const int64_t number = parse_int(text, flag);
  if (number >= 1 && number <= INT32_MAX) return number;
  throw UsageError{{"value_out_of_range", flag,
                    std::string(flag) + " must be from 1 to " + std::to_string(INT32_MAX) +
                        ", not " + printable(text, 60),
                    ""}};
}

double parse_temperature(const std::string& text, const char* flag) {
  return parse_number_within(text, 0, 5, flag);
}

double parse_min_p(const std::string& text, const char* flag) {
  return parse_number_within(text, 0, 1, flag);
}

// Of no probability at all there is no token to choose.
double parse_top_p(const std::string& text, const char* flag) {
  const double number = parse_number_within(text, 0, 1, flag);
  if (number > 0) return number;
  throw UsageError{{"value_out_of_range", flag, std::string(flag) + " must be above 0", ""}};
}

std::string parse_kv_cache_mode(const std::string& text, const char* flag) {
  for (const char* mode : {"default", "affine8", "polar2", "auto"}) {
    if (text == mode) return text;
  }
  throw UsageError{{"value_invalid", flag,
                    std::string(flag) + ": \"" + printable(text, 60) +
                        "\" is not default, affine8, polar2 or auto",
                    ""}};
}

bool parse_set(const std::string&, const char*) { return true; }

std::string text_of(const std::string& value) { return shown(value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(int64_t value) { return std::to_string(value); }
std::string text_of(double value) { return number_text(value); }

// ---- Settings -----------------------------------------------------------------------------------

struct Setting {
  const char* key;       // in the file and in JSON
  const char* flag;      // "--alias"
  const char* type;      // of its value; nullptr: it takes none
  const char* off_flag;  // "--clear-alias"; nullptr: there is none
  const char* help;
  void (*set)(RuntimeSettings&, const std::string& text, const char* flag);
  void (*off)(RuntimeSettings&);
  Document (*document)(const RuntimeSettings&);
  std::string (*text)(const RuntimeSettings&);

  std::string name() const { return flag + 2; }
};

template <auto kMember, auto kParse>
void set_value(RuntimeSettings& settings, const std::string& text, const char* flag) {
  settings.*kMember = kParse(text, flag);
}

template <auto kMember>
void clear_value(RuntimeSettings& settings) {
  (settings.*kMember).reset();
}

void unpin(RuntimeSettings& settings) { settings.pinned = false; }

template <auto kMember>
Document document_of(const RuntimeSettings& settings) {
  return settings.*kMember ? Document(*(settings.*kMember)) : Document(nullptr);
}

template <auto kMember>
std::string value_text(const RuntimeSettings& settings) {
  return settings.*kMember ? text_of(*(settings.*kMember)) : "(unset)";
}

template <auto kMember, auto kParse>
constexpr Setting row(const char* key, const char* flag, const char* type, const char* off_flag,
                      const char* help, void (*off)(RuntimeSettings&) = clear_value<kMember>) {
  return {key,
          flag,
          type,
          off_flag,
          help,
          set_value<kMember, kParse>,
          off,
          document_of<kMember>,
          value_text<kMember>};
}

using S = RuntimeSettings;
constexpr std::array kSettings = {
    row<&S::alias, parse_id>("alias", "--alias", "ID", "--clear-alias",
                             "Another id that requests may name the model by"),
    row<&S::pinned, parse_set>("pinned", "--pinned", nullptr, "--unpinned",
                               "Never unload it for want of use", unpin),
    row<&S::ttl_seconds, parse_count>("ttlSeconds", "--ttl-seconds", "N", "--clear-ttl",
                                      "Unload it after this long without a request"),
    row<&S::max_context_tokens, parse_count>("maxContextTokens", "--max-context-tokens", "N",
                                             "--clear-max-context-tokens",
                                             "Tokens of prompt and answer together"),
    row<&S::max_tokens, parse_count>("maxTokens", "--max-tokens", "N", "--clear-max-tokens",
                                     "Tokens of an answer, where a request does not say"),
    row<&S::temperature, parse_temperature>("temperature", "--temperature", "X",
                                            "--clear-temperature",
                                            "0 to 5, where a request does not say"),
    row<&S::top_p, parse_top_p>("topP", "--top-p", "X", "--clear-top-p",
                                "Above 0, at most 1, where a request does not say"),
    row<&S::min_p, parse_min_p>("minP", "--min-p", "X", "--clear-min-p",
                                "0 to 1, where a request does not say"),
    row<&S::engine, parse_id>("engineOverride", "--engine", "NAME", "--clear-engine",
                              "Engine to run it with, instead of its own"),
    row<&S::kv_cache_mode, parse_kv_cache_mode>("kvCacheMode", "--kv-cache-mode", "MODE", nullptr,
                                                "default, affine8, polar2 or auto"),
};

struct RuntimeOptions {
  std::string id;
  std::map<std::string, std::string> values;  // by flag, as given
  std::set<std::string> off;                  // the off_flags given
  bool json = false;
};

// UsageError when a value is wrong, or was given together with its opposite, or nothing was given.
void apply(const RuntimeOptions& options, RuntimeSettings& settings) {
  if (options.values.empty() && options.off.empty()) {
    throw UsageError{{"usage", "", "nothing to set", "see mere.run model runtime set --help"}};
  }
  for (const Setting& setting : kSettings) {
    const auto value = options.values.find(setting.flag);
    const bool has_value = value != options.values.end();
    const bool off = setting.off_flag != nullptr && options.off.contains(setting.off_flag);
    if (has_value && off) {
      throw UsageError{{"usage", setting.flag,
                        "give either " + std::string(setting.flag) + " or " + setting.off_flag,
                        "see mere.run model runtime set --help"}};
    }
    if (has_value) setting.set(settings, value->second, setting.flag);
    if (off) setting.off(settings);
  }
}

// ---- Models -------------------------------------------------------------------------------------

struct RuntimeModel {
  std::string id;
  fs::path models_dir;
  RuntimeSettings settings;
};

// The id of a model that is installed anywhere, embedded, or known to the catalog.
std::optional<std::string> model_id(const std::string& text, const StorePlaces& places) {
  if (const CatalogModel* known = find_catalog_model(text)) return known->id;
  if (const auto folder = find_model_folder(text, places)) return folder->id;
  if (lower(text) == kEmbeddedModelId) return kEmbeddedModelId;
  return std::nullopt;
}

RuntimeModel find_runtime_model(const std::string& id_or_alias, const StorePlaces& places) {
  const AllRuntimeSettings all = read_runtime_settings(places.models_dir);
  const std::string text = trimmed(id_or_alias);
  std::string id = model_id(text, places).value_or(id_of_alias(text, all));
  const auto it = all.find(id);
  // Settings outlive their model: it may come back.
  if (it != all.end()) return {id, places.models_dir, it->second};
  if (model_id(id, places)) return {id, places.models_dir, {}};
  throw UsageError{{"model_unknown", "ID",
                    "no model \"" + printable(id_or_alias, 80) +
                        "\" is in the catalog or installed, and none has that alias",
                    ""}};
}

// The library knows of the store and the catalog, but not of the user's other places.
void check_alias(const RuntimeOptions& options, const std::string& id, const StorePlaces& places) {
  const auto alias = options.values.find("--alias");
  if (alias == options.values.end()) return;
  const auto taken = find_model_folder(alias->second, places);
  if (!taken || lower(taken->id) == lower(id)) return;
  throw UsageError{{"alias_taken", "--alias",
                    "--alias: \"" + alias->second + "\" already names another model", ""}};
}

StorePlaces find_places(const Context& context, Progress& progress) {
  const fs::path named = context.named_models_dir(progress);
  return store_places(named.empty() ? named : fs::absolute(named));
}

// ---- Commands -----------------------------------------------------------------------------------

void print_settings(const RuntimeOptions& options, const RuntimeModel& model, bool saved,
                    const TerminalProgress& progress) {
  const std::string path = runtime_settings_path(model.models_dir).string();
  Document settings = Document::object();
  std::string text = shown(model.id) + "\n";
  for (const Setting& setting : kSettings) {
    settings[setting.key] = setting.document(model.settings);
    text += "  " + setting.name() + " = " + setting.text(model.settings) + "\n";
  }
  if (options.json) {
    print_document({{"status", saved ? "saved" : "completed"},
                    {"id", model.id},
                    {"file", path},
                    {"settings", settings},
                    {"warnings", progress.warnings()}});
    return;
  }
  print_result(text + (saved ? "Saved to " + shown(path) + "\n" : ""));
}

int run_get(const RuntimeOptions& options, const Context& context, TerminalProgress& progress) {
  const RuntimeModel model = find_runtime_model(options.id, find_places(context, progress));
  print_settings(options, model, false, progress);
  return 0;
}

int run_set(const RuntimeOptions& options, const Context& context, TerminalProgress& progress) {
  RuntimeSettings checked;
  apply(options, checked);  // before the lock, which makes folders
  const StorePlaces places = find_places(context, progress);
  RuntimeModel model = find_runtime_model(options.id, places);
  check_alias(options, model.id, places);
  model.settings = change_runtime_settings(
      places.models_dir, model.id, [&](RuntimeSettings& settings) { apply(options, settings); });
  print_settings(options, model, true, progress);
  return 0;
}

using Run = int (*)(const RuntimeOptions&, const Context&, TerminalProgress&);

int run_reporting(Run run, const RuntimeOptions& options, Context& context) {
  TerminalProgress progress(ProgressStyle::kHuman);
  try {
    return run(options, context, progress);
  } catch (...) {
    context.warnings = progress.warnings();
    throw;
  }
}

CLI::App* add_command(CLI::App& runtime, Context& context, const char* name, const char* help,
                      const std::shared_ptr<RuntimeOptions>& options, Run run) {
  CLI::App* command = runtime.add_subcommand(name, help);
  command->callback([options, run, &context] {
    context.action = [options, run, &context] { return run_reporting(run, *options, context); };
  });
  command->add_option("ID", options->id, "Id of the catalog or of an installed model, or an alias")
      ->required()
      ->type_name("");
  return command;
}

void add_setting(CLI::App& command, const Setting& setting,
                 const std::shared_ptr<RuntimeOptions>& options) {
  const std::string flag = setting.flag;
  if (setting.type == nullptr) {
    command.add_flag_callback(
        flag, [options, flag] { options->values[flag] = ""; }, setting.help);
  } else {
    command
        .add_option_function<std::string>(
            flag, [options, flag](const std::string& text) { options->values[flag] = text; },
            setting.help)
        ->type_name(setting.type);
  }
  if (setting.off_flag == nullptr) return;
  const std::string off = setting.off_flag;
  command.add_flag_callback(
      off, [options, off] { options->off.insert(off); }, "Undo " + flag);
}

}  // namespace

void add_model_runtime_command(CLI::App& model, Context& context) {
  CLI::App* runtime =
      model.add_subcommand("runtime", "Show and change how a server treats a model");
  const auto options = std::make_shared<RuntimeOptions>();
  CLI::App* get =
      add_command(*runtime, context, "get", "Print the settings of a model", options, run_get);
  get->add_flag("--json", options->json, "Print one JSON document; errors too");
  CLI::App* set =
      add_command(*runtime, context, "set", "Change settings of a model", options, run_set);
  for (const Setting& setting : kSettings) add_setting(*set, setting, options);
  set->add_flag("--json", options->json, "Print one JSON document; errors too");
}

}  // namespace mere::cli
