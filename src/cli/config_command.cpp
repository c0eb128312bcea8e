#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/terminal_progress.h"
#include "core/config.h"

namespace mere::cli {
namespace {

struct ConfigOptions {
  std::string key;
  std::string value;
  std::string variable;  // --from-env
  bool has_value = false;
  bool reveal = false;
  bool json = false;
};

// `reveal`: secrets as they are.
std::string value_text(const ConfigKey& key, const std::string& value, bool reveal) {
  return key.secret && !reveal ? masked(value) : value;
}

// A value that is stored and not used would puzzle.
void tell_what_wins(const ConfigKey& key, TerminalProgress& progress) {
  const std::string variable = overriding_variable(key);
  if (!variable.empty()) {
    progress.note(variable + " is set and is used instead of the stored " + std::string(key.name));
  }
}

std::string value_of_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr ||
      std::string_view(value).find_first_not_of(" \t\r\n") == std::string::npos) {
    throw UsageError{{"variable_not_set", "--from-env",
                      "--from-env: the variable " + printable(name, 60) + " is not set or is blank",
                      ""}};
  }
  return value;
}

int run_set(const ConfigOptions& options) {
  const ConfigKey& key = find_config_key(options.key);
  if (options.has_value == !options.variable.empty()) {
    throw UsageError{{"usage", "VALUE", "give either VALUE or --from-env NAME",
                      "see mere.run config set --help"}};
  }
  TerminalProgress progress(ProgressStyle::kHuman);
  const std::string value = options.has_value ? options.value : value_of_variable(options.variable);
  const auto stored = set_config_value(key.name, value, progress);
  const std::string name(key.name);
  print_result(
      (stored ? "Set " + name + " = " + shown(value_text(key, *stored, false)) : "Unset " + name) +
      "\nSaved to " + shown(config_path().string()) + "\n");
  tell_what_wins(key, progress);
  return 0;
}

int run_get(const ConfigOptions& options) {
  const ConfigKey& key = find_config_key(options.key);
  TerminalProgress progress(ProgressStyle::kHuman);
  const auto stored = stored_config(progress);
  const auto it = stored.find(std::string(key.name));
  if (options.json) {
    Document document = {{"key", key.name}, {"value", nullptr}, {"secret", key.secret}};
    if (it != stored.end()) document["value"] = value_text(key, it->second, options.reveal);
    document["overridden_by"] = overriding_variable(key);
    document["warnings"] = progress.warnings();
    print_document(document);
    return 0;
  }
  if (it == stored.end()) {
    // Not on standard output, where a script would take it for the value.
    progress.note(std::string(key.name) + " is not set.");
  } else {
    print_result(shown(value_text(key, it->second, options.reveal)) + "\n");
  }
  tell_what_wins(key, progress);
  return 0;
}

int run_unset(const ConfigOptions& options) {
  const ConfigKey& key = find_config_key(options.key);
  TerminalProgress progress(ProgressStyle::kHuman);
  set_config_value(key.name, std::nullopt, progress);
  print_result("Unset " + std::string(key.name) + "\n");
  tell_what_wins(key, progress);
  return 0;
}

int run_list(const ConfigOptions& options) {
  TerminalProgress progress(ProgressStyle::kHuman);
  const auto stored = stored_config(progress);
  Document values = Document::object();
  std::string text = "config: " + shown(config_path().string()) + "\n";
  for (const ConfigKey& key : config_keys()) {
    const auto it = stored.find(std::string(key.name));
    const bool is_set = it != stored.end();
    const std::string value = is_set ? value_text(key, it->second, false) : "";
    values[std::string(key.name)] = is_set ? Document(value) : Document(nullptr);
    text += "  " + std::string(key.name) + " = " + (is_set ? shown(value) : "(unset)") + "\n";
  }
  if (options.json) {
    print_document(
        {{"path", config_path().string()}, {"values", values}, {"warnings", progress.warnings()}});
    return 0;
  }
  print_result(text);
  for (const ConfigKey& key : config_keys()) tell_what_wins(key, progress);
  return 0;
}

int run_path() {
  print_result(shown(config_path().string()) + "\n");
  return 0;
}

CLI::App* add_command(CLI::App& config, Context& context, const char* name, const char* help,
                      const std::shared_ptr<ConfigOptions>& options,
                      int (*run)(const ConfigOptions&)) {
  CLI::App* command = config.add_subcommand(name, help);
  command->callback(
      [options, run, &context] { context.action = [options, run] { return run(*options); }; });
  return command;
}

void add_key(CLI::App& command, const std::shared_ptr<ConfigOptions>& options) {
  std::string names;
  for (const ConfigKey& key : config_keys()) {
    names += (names.empty() ? "" : " or ") + std::string(key.name);
  }
  command.add_option("KEY", options->key, names)->required()->type_name("");
}

}  // namespace

void add_config_command(CLI::App& app, Context& context) {
  CLI::App* config = app.add_subcommand("config", "Show and change the stored settings");
  const auto options = std::make_shared<ConfigOptions>();

  CLI::App* set = add_command(*config, context, "set", "Store a value; a blank one removes the key",
                              options, run_set);
  add_key(*set, options);
  set->add_option_function<std::string>(
         "VALUE",
         [options](const std::string& text) {
           options->value = text;
           options->has_value = true;
         },
         "The value. Other users of the machine can see arguments: give a token with --from-env")
      ->type_name("");
  set->add_option_function<std::string>(
         "--from-env",
         [options](const std::string& text) { options->variable = non_empty(text, "--from-env"); },
         "Take the value from this variable of the environment")
      ->type_name("NAME");

  CLI::App* get = add_command(*config, context, "get", "Print a stored value, secrets masked",
                              options, run_get);
  add_key(*get, options);
  get->add_flag("--reveal", options->reveal, "Print a secret in full");
  get->add_flag("--json", options->json, "Print one JSON document; errors too");

  CLI::App* unset = add_command(*config, context, "unset", "Remove a key", options, run_unset);
  add_key(*unset, options);

  CLI::App* list =
      add_command(*config, context, "list", "Print every key, secrets masked", options, run_list);
  list->add_flag("--json", options->json, "Print one JSON document; errors too");

  CLI::App* path = config->add_subcommand("path", "Print the path of the file");
  path->callback([&context] { context.action = run_path; });
}

}  // namespace mere::cli
