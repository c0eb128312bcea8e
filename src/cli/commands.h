// One function per command: it declares the options below its parent and, when the words name the
// command, leaves what to do in `context.action`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "core/files.h"
#include "core/progress.h"

namespace CLI {
class App;
}

namespace mere::cli {

struct Context {
  std::string models_root;  // --models-root; empty: the default
  // The chosen command's work; returns the exit status.
  std::function<int()> action;
  // What the action left behind when it throws, for the document of the error.
  Document outputs = Document::array();  // as in the result: pictures already on disk
  std::vector<std::string> warnings;

  // Where installed models are. UsageError when --models-root is no folder; a warning when
  // MERERUN_MODELS_DIR is none: it may be set for programs that have not run yet.
  fs::path models_dir(Progress& progress) const;
  // The same for what looks models up: empty when --models-root names none, for the user's own
  // locations count then too (catalog/store_places.h).
  fs::path named_models_dir(Progress& progress) const;
};

void add_adapter_command(CLI::App& app, Context& context);
void add_config_command(CLI::App& app, Context& context);
void add_image_generate_command(CLI::App& image, Context& context);
void add_image_info_command(CLI::App& image, Context& context);
void add_image_validate_command(CLI::App& image, Context& context);
void add_model_location_command(CLI::App& model, Context& context);
void add_model_pull_command(CLI::App& model, Context& context);
void add_model_runtime_command(CLI::App& model, Context& context);
void add_model_show_commands(CLI::App& model, Context& context);
void add_model_store_commands(CLI::App& model, Context& context);
void add_status_command(CLI::App& app, Context& context);

}  // namespace mere::cli
