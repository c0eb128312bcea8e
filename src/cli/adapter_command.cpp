#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <unistd.h>

#include "catalog/adapters.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/pull_progress.h"
#include "core/system.h"

namespace mere::cli {
namespace {

struct AdapterOptions {
  std::string id;
  bool force = false;
  bool quiet = false;
  bool accept_license = false;
  bool json = false;
};

// ---- List ---------------------------------------------------------------------------------------

using Row = std::array<std::string, 4>;

std::string table_text(const std::vector<Row>& rows) {
  std::array<size_t, std::tuple_size_v<Row>> width{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      text += row[i] + std::string(width[i] - row[i].size() + 2, ' ');
    }
    text += row.back() + "\n";
  }
  return text;
}

std::string verified_text(const AdapterState& state) {
  if (!state.installed) return "-";
  if (state.adapter.sha256.empty()) return "unknown";
  return state.verified ? "yes" : "no";
}

Document state_document(const AdapterState& state) {
  const CatalogAdapter& adapter = state.adapter;
  return {{"id", adapter.id},
          {"base", adapter.base.empty() ? Document(nullptr) : Document(adapter.base)},
          {"version", adapter.version},
          {"installed", state.installed},
          {"verified", state.verified},
          {"path", state.installed ? Document(state.path.string()) : Document(nullptr)},
          {"bytes", adapter.bytes > 0 ? Document(adapter.bytes) : Document(nullptr)},
          {"license", adapter.license},
          {"needs_acceptance", adapter.needs_acceptance},
          {"has_source", adapter.has_source()}};
}

int run_list(const AdapterOptions& options) {
  const std::vector<AdapterState> states = list_adapters();
  if (options.json) {
    Document adapters = Document::array();
    for (const AdapterState& state : states) adapters.push_back(state_document(state));
    print_document({{"status", "completed"}, {"adapters", adapters}, {"version", version()}});
    return 0;
  }
  std::vector<Row> rows = {{"ID", "BASE", "INSTALLED", "VERIFIED"}};
  for (const AdapterState& state : states) {
    rows.push_back({state.adapter.id, state.adapter.base.empty() ? "-" : state.adapter.base,
                    state.installed ? "yes" : "no", verified_text(state)});
  }
  print_result(table_text(rows));
  return 0;
}

// ---- Pull ---------------------------------------------------------------------------------------

const CatalogAdapter& chosen_adapter(const AdapterOptions& options) {
  const CatalogAdapter* adapter = find_catalog_adapter(options.id);
  if (adapter == nullptr) {
    throw UsageError{{"adapter_unknown", "ID",
                      "no adapter \"" + printable(options.id) + "\" in the catalog",
                      "mere.run adapter list shows what there is"}};
  }
  return *adapter;
}

AdapterPullResult pull_showing_progress(const CatalogAdapter& adapter,
                                        const AdapterOptions& options, PullProgress& progress) {
  progress.set_model(adapter.id);
  TransferState state{.bytes_total = adapter.bytes, .files_total = 1};
  // Small beside models: a log is spared the lines.
  const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  const auto show = [&](int64_t bytes) {
    if (bytes < state.bytes_done) state.bytes_done = 0;  // another attempt
    state.bytes_received += bytes - state.bytes_done;
    state.bytes_done = bytes;
    if (is_terminal) progress.on_transfer(state);
  };
  AdapterPullOptions how;
  how.force = options.force;
  how.accept_license = options.accept_license;
  const AdapterPullResult result = pull_adapter(adapter, how, http_fetch(progress), progress, show);
  if (!result.was_there) {
    state.files_done = 1;
    if (is_terminal) progress.on_transfer(state);
  }
  progress.finish_line();
  return result;
}

int run_pull(const AdapterOptions& options, PullProgress& progress) {
  const CatalogAdapter& adapter = chosen_adapter(options);
  const InterruptGuard interrupt(progress, false);
  Document document = {{"id", adapter.id}};
  std::string path;
  if (!adapter.has_source() && !adapter_state(adapter).verified) {
    // No mistake of the caller.
    const std::string reason = "no public source is known for it";
    progress.note(adapter.id + ": skipped: " + reason);
    document.update({{"status", "skipped"}, {"reason", "no_public_source"}, {"message", reason}});
  } else {
    const AdapterPullResult result = pull_showing_progress(adapter, options, progress);
    if (result.was_there) progress.note(adapter.id + " is here already");
    path = result.path.string();
    document.update({{"status", result.was_there ? "already_installed" : "installed"},
                     {"path", path},
                     {"bytes", adapter.bytes}});
  }
  if (options.json) {
    print_document({{"status", "completed"},
                    {"adapter", document},
                    {"warnings", progress.warnings()},
                    {"version", version()}});
  } else if (!path.empty()) {
    print_result(path + "\n");
  }
  return 0;
}

int run_pull_reporting(const AdapterOptions& options, Context& context) {
  PullProgress progress(options.quiet ? ProgressStyle::kQuiet : ProgressStyle::kHuman);
  try {
    return run_pull(options, progress);
  } catch (...) {
    context.warnings = progress.warnings();
    throw;
  }
}

}  // namespace

void add_adapter_command(CLI::App& app, Context& context) {
  CLI::App* adapter = app.add_subcommand("adapter", "List and download LoRA adapters");
  const auto options = std::make_shared<AdapterOptions>();

  CLI::App* list = adapter->add_subcommand("list", "Print the adapters of the catalog");
  list->add_flag("--json", options->json, "Print one JSON document; errors too");
  list->callback(
      [options, &context] { context.action = [options] { return run_list(*options); }; });

  CLI::App* pull = adapter->add_subcommand("pull", "Download an adapter of the catalog");
  pull->add_option("ID", options->id, "Id of the adapter")->required()->type_name("");
  pull->add_flag("--force", options->force, "Fetch again, and replace another file in its place");
  pull->add_flag("--accept-license", options->accept_license,
                 "Accept the licence of an adapter that asks for it");
  pull->add_flag("--json", options->json, "Print one JSON document; errors too");
  pull->add_flag("-q,--quiet", options->quiet, "No progress; warnings and errors remain");
  pull->callback([options, &context] {
    context.action = [options, &context] { return run_pull_reporting(*options, context); };
  });
}

}  // namespace mere::cli
