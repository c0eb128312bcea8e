#include "cli/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
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
  CLI::App* image = app.add_subcommand("image", "Draw, check and inspect pictures");
  image->fallthrough();
  add_image_generate_command(*image, context);
  add_image_info_command(*image, context);
  add_image_validate_command(*image, context);
  for (CLI::App* command : image->get_subcommands({})) command->fallthrough();
}

// Prints the one line of an error, and with --json its document; returns the exit status.
int report(const Error& error, bool json) {
  if (error.kind() == ErrorKind::kCancelled) {
    std::fputs("mere.run: cancelled\n", stderr);
  } else {
    print_error(error.what());
  }
  if (json) print_document(error_document(error.info(), error.kind() == ErrorKind::kCancelled));
  return exit_status(error.kind());
}

int run_command(CLI::App& app, Context& context, std::vector<std::string> arguments) {
  std::string name;
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success& e) {
    return app.exit(e, std::cout, std::cerr);
  } catch (const CLI::ParseError& e) {
    chosen_command(app, name);
    throw UsageError{{"usage", "", e.what(), "see " + name + " --help"}};
  }
  if (!context.action) {
    std::cerr << chosen_command(app, name).help();
    return exit_status(ErrorKind::kUsage);
  }
  return context.action();
}

int run_reporting_errors(int argc, const char* const* argv) {
  std::vector<std::string> arguments = reversed_arguments(argc, argv);
  const bool json = std::ranges::find(arguments, "--json") != arguments.end();
  try {
    Context context;
    CLI::App app(kDescription, "mere.run");
    declare_commands(app, context);
    return run_command(app, context, std::move(arguments));
  } catch (const Error& e) {
    return report(e, json);
  } catch (const std::bad_alloc&) {
    return report(ResourceError{{"memory", "", "out of memory", "choose a smaller size"}}, json);
  } catch (const std::exception& e) {
    return report(InternalError{{"internal", "", e.what(), ""}}, json);
  }
}

}  // namespace

fs::path Context::models_dir() const {
  return models_root.empty() ? default_models_dir() : fs::path(models_root);
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
