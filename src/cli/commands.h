// One function per command: it declares the options below its parent and, when the words name the
// command, leaves what to do in `context.action`.
#pragma once

#include <functional>
#include <string>

#include "core/files.h"

namespace CLI {
class App;
}

namespace mere::cli {

struct Context {
  std::string models_root;  // --models-root; empty: the default
  // The chosen command's work; returns the exit status.
  std::function<int()> action;

  fs::path models_dir() const;
};

void add_image_generate_command(CLI::App& image, Context& context);
void add_image_info_command(CLI::App& image, Context& context);
void add_image_validate_command(CLI::App& image, Context& context);

}  // namespace mere::cli
