#include "cli/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "core/error.h"
#include "core/system.h"

namespace mere::cli {
namespace {

constexpr const char* kDescription = "Pictures from words, on your own machine.";
constexpr const char* kFooter =
    "\nGlobal options, accepted everywhere: --models-root DIR, --version, -h,--help\n"
    "Exit status: 0 success, 64 usage, 130 cancelled, 1 any other failure";
constexpr size_t kHelpColumn = 34;
constexpr size_t kHelpTextColumns = 66;

// `text` broken between words into lines of at most kHelpTextColumns; CLI11 indents what follows a
// line break and breaks nothing itself.
std::string wrapped(const std::string& text) {
  std::string out;
  size_t column = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const size_t length = end - start;
    if (column > 0 && column + 1 + length > kHelpTextColumns) {
      out += '\n';
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out.append(text, start, length);
    column += length;
    start = end + 1;
  }
  return out;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option));
  }
};

// Arguments in the reverse order that CLI11 takes. "--name=" is split in two: CLI11 would take the
// next word as the value of an option that was set to nothing.
std::vector<std::string> reversed_arguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool sets_nothing = argument.size() > 3 && argument.rfind("--", 0) == 0 &&
                              argument.find('=') == argument.size() - 1;
    if (!sets_nothing) {
      arguments.push_back(argument);
      continue;
    }
    arguments.push_back(argument.substr(0, argument.size() - 1));
    arguments.emplace_back();
  }
  std::ranges::reverse(arguments);
  return arguments;
}

// The command that the words led to, e.g. "mere.run image generate".
const CLI::App& chosen_command(const CLI::App& app, std::string& name) {
  const CLI::App* command = &app;
  name = "mere.run";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  return *command;
}

// What holds for every command and its subcommands.
void set_rules(CLI::App& command) {
  command.fallthrough();
  for (CLI::Option* option : command.get_options()) {
    const bool is_flag = option->get_items_expected_max() == 0;
    if (is_flag) option->disable_flag_override();
  }
  const std::vector<CLI::App*> subcommands = command.get_subcommands({});
  if (!subcommands.empty()) command.require_subcommand(0, 1);
  for (CLI::App* subcommand : subcommands) set_rules(*subcommand);
}

void declare_commands(CLI::App& app, Context& context) {
  app.add_option_function<std::string>(
         "--models-root",
         [&context](const std::string& text) {
           context.models_root = non_empty(text, "--models-root");
         },
         "Folder of installed models (default: MERERUN_MODELS_DIR, else " +
             (app_support_dir() / "models").string() + ")")
      ->type_name("DIR");
  app.set_version_flag("--version", "mere.run " + version(), "Print the version and exit");
  app.footer(kFooter);
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(kHelpColumn);
  app.formatter(formatter);
  app.fallthrough();
  // At most one command at each level: the name of another one is then a stray word.
  app.require_subcommand(0, 1);
  CLI::App& image = *app.add_subcommand("image", "Draw, check and inspect pictures");
  add_image_generate_command(image, context);
  add_image_info_command(image, context);
  add_image_validate_command(image, context);
  CLI::App& model = *app.add_subcommand("model", "Download, list, check and remove models");
  add_model_show_commands(model, context);
  add_model_pull_command(model, context);
  add_model_store_commands(model, context);
  add_model_location_command(model, context);
  add_model_runtime_command(model, context);
  add_adapter_command(app, context);
  add_config_command(app, context);
  add_status_command(app, context);
  for (CLI::App* command : app.get_subcommands({})) set_rules(*command);
}

// ---- Mistakes on the command line ---------------------------------------------------------------
//
// A prompt that was not quoted, or whose option is misspelt, ends up as stray words, and errors are
// logged: nothing is repeated of an argument but what looks like the name of an option.

bool is_option_name(std::string_view text) {
  const size_t dashes = std::min(text.find_first_not_of('-'), text.size());
  const std::string_view name = text.substr(dashes);
  return dashes >= 1 && dashes <= 2 && !name.empty() && std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
         });
}

// "--name" of "--name=value" and "--name:value", "-n" of "-nvalue"; empty when it is no option.
std::string option_name(const std::string& argument) {
  const std::string name = argument.substr(0, argument.find_first_of("=:"));
  if (!is_option_name(name)) return {};
  return name.starts_with("--") ? name : name.substr(0, 2);
}

std::string command_names(const CLI::App& command) {
  std::string names;
  for (const CLI::App* sub : command.get_subcommands({})) {
    names += (names.empty() ? "" : ", ") + sub->get_name();
  }
  return names;
}

ErrorInfo unexpected_argument(const CLI::App& command, const std::string& argument,
                              const std::string& help) {
  if (const std::string name = option_name(argument); !name.empty()) {
    return {"usage", name, "unknown option " + name, help};
  }
  if (const std::string names = command_names(command); !names.empty()) {
    return {"usage", "", "unknown command; commands: " + names, help};
  }
  const bool has_prompt = command.get_option_no_throw("--prompt") != nullptr;
  return {"usage", "",
          std::string("unexpected argument; quote ") + (has_prompt ? "the prompt" : "a name") +
              " if it has several words",
          help};
}

// The option that a message of CLI11 begins with, sometimes without its dashes; nullptr when it is
// none of `command` or above.
const CLI::Option* option_of(const CLI::App& command, const std::string& message) {
  const std::string name = message.substr(0, message.find_first_of(": "));
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      if (option->check_name(name) || option->check_name("--" + name)) return option;
    }
  }
  return nullptr;
}

ErrorInfo usage_info(const CLI::App& command, const CLI::ParseError& error,
                     const std::vector<std::string>& unexpected, const std::string& help) {
  // First: a misspelt option is also why a required one is missing.
  if (!unexpected.empty()) return unexpected_argument(command, unexpected.front(), help);
  const std::string message = error.what();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return {"usage", option_name(message.substr(0, message.find(' '))), message, help};
  }
  const CLI::Option* option = option_of(command, message);
  if (option == nullptr) return {"usage", "", "the command line cannot be understood", help};
  const std::string name = option->get_name();
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) {
    return {"value_invalid", name, message, help};
  }
  if (option->get_items_expected_max() == 0) return {"usage", name, name + " takes no value", help};
  const size_t times = option->count();
  if (times < 2) return {"usage", name, name + " needs a value", help};
  return {"usage", name,
          name + " was given " + (times == 2 ? "twice" : std::to_string(times) + " times"), help};
}

// Prints the one line of an error, and with --json its document; returns the exit status.
int report(const Error& error, bool json, const Context& context) {
  if (error.kind() == ErrorKind::kCancelled) {
    std::fputs("mere.run: cancelled\n", stderr);
  } else {
    print_error(error.what());
  }
  if (json) {
    Document document = error_document(error.info(), error.kind() == ErrorKind::kCancelled);
    document["outputs"] = context.outputs;
    document["warnings"] = context.warnings;
    print_document(document);
  }
  return exit_status(error.kind());
}

int run_command(CLI::App& app, Context& context, std::vector<std::string> arguments) {
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    print_result(app.help());
    return 0;
  } catch (const CLI::CallForVersion& e) {
    print_result(std::string(e.what()) + "\n");
    return 0;
  } catch (const CLI::ParseError& e) {
    std::string name;
    const CLI::App& command = chosen_command(app, name);
    throw UsageError{usage_info(command, e, app.remaining(true), "see " + name + " --help")};
  }
  if (!context.action) {
    std::cerr << app.help();
    return exit_status(ErrorKind::kUsage);
  }
  return context.action();
}

int run_reporting_errors(int argc, const char* const* argv) {
  std::vector<std::string> arguments = reversed_arguments(argc, argv);
  const bool json = std::ranges::find(arguments, "--json") != arguments.end();
  Context context;
  try {
    CLI::App app(kDescription, "mere.run");
    declare_commands(app, context);
    return run_command(app, context, std::move(arguments));
  } catch (const Error& e) {
    return report(e, json, context);
  } catch (const std::bad_alloc&) {
    return report(ResourceError{{"memory", "", "out of memory", "choose a smaller size"}}, json,
                  context);
  } catch (const std::exception& e) {
    return report(InternalError{{"internal", "", e.what(), ""}}, json, context);
  }
}

}  // namespace

fs::path Context::named_models_dir(Progress& progress) const {
  std::error_code ec;
  if (!models_root.empty()) {
    if (!fs::is_directory(models_root, ec)) {
      throw UsageError{{"models_root_missing", "--models-root",
                        "--models-root: no folder at " + models_root, ""}};
    }
    return models_root;
  }
  const char* variable = std::getenv("MERERUN_MODELS_DIR");
  if (variable != nullptr && *variable != '\0' && !fs::is_directory(variable, ec)) {
    progress.warn("MERERUN_MODELS_DIR: no folder at " + std::string(variable));
  }
  return {};
}

fs::path Context::models_dir(Progress& progress) const {
  const fs::path named = named_models_dir(progress);
  return named.empty() ? default_models_dir() : named;
}

int run(int argc, const char* const* argv) {
  try {
    return run_reporting_errors(argc, argv);
  } catch (const std::exception& e) {
    // Only the error document's own printing gets here.
    print_error(printable(e.what(), 1000));
    return 1;
  }
}

}  // namespace mere::cli
