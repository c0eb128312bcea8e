#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "catalog/catalog.h"
#include "catalog/store.h"
#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/server_probe.h"
#include "cli/terminal_progress.h"
#include "core/system.h"
#include "engine/admission.h"

namespace mere::cli {
namespace {

struct StatusOptions {
  ProbeRequest server;
  bool json = false;
};

struct InstalledModel {
  std::string id;
  std::string category;
  std::string size;  // for people
};

// What all parts of the answer say; a part that could not be found out says why.
struct Status {
  ServerProbe server;
  fs::path store;
  std::string store_source;
  std::vector<InstalledModel> models;
  std::optional<AdmissionSnapshot> admission;
  std::string admission_detail;
};

std::vector<InstalledModel> installed_models(const StorePlaces& places) {
  std::vector<InstalledModel> models;
  for (const StoredModel& model : list_models(places, Measure::kYes)) {
    if (model.check.state != ModelState::kComplete) continue;
    models.push_back({model.id, model.category.empty() ? "other" : model.category,
                      human_bytes(model.bytes.value_or(0))});
  }
  std::ranges::sort(models, {}, &InstalledModel::id);
  return models;
}

std::string store_source(const Context& context) {
  if (!context.models_root.empty()) return "processOverride";
  const char* variable = std::getenv("MERERUN_MODELS_DIR");
  return variable != nullptr && *variable != '\0' ? "environment" : "default";
}

Status find_status(const StatusOptions& options, const Context& context, Progress& progress) {
  Status status;
  const StorePlaces places = store_places(context.named_models_dir(progress));
  status.store = fs::absolute(places.models_dir).lexically_normal();
  status.store_source = store_source(context);
  status.server = probe_server(options.server);
  status.models = installed_models(places);
  try {
    status.admission = Admission().snapshot();
  } catch (const Error& e) {
    status.admission_detail = e.what();
  }
  return status;
}

// ---- JSON ---------------------------------------------------------------------------------------

Json ticket_json(const AdmissionTicket& ticket) {
  Json json = {
      {"id", ticket.id},           {"processID", ticket.process},
      {"label", ticket.label},     {"resourceClass", resource_class_name(ticket.resource_class)},
      {"permits", ticket.permits}, {"queuedAt", ticket.queued_at}};
  if (ticket.admitted_at) json["admittedAt"] = *ticket.admitted_at;
  return json;
}

Json admission_json(const AdmissionSnapshot& snapshot) {
  Json json = {{"capacityPermits", snapshot.capacity_permits},
               {"activePermits", snapshot.active_permits},
               {"active", Json::array()},
               {"queued", Json::array()},
               {"memoryPressure", memory_pressure_name(memory_pressure(snapshot.host))},
               {"minimumDiskBytes", minimum_disk_bytes(snapshot.host)}};
  for (const AdmissionTicket& ticket : snapshot.active) {
    json["active"].push_back(ticket_json(ticket));
  }
  for (const AdmissionTicket& ticket : snapshot.queued) {
    json["queued"].push_back(ticket_json(ticket));
  }
  if (snapshot.host.available) json["availableMemoryBytes"] = *snapshot.host.available;
  if (snapshot.host.disk) json["availableDiskBytes"] = *snapshot.host.disk;
  return json;
}

Json server_json(const ServerProbe& server) {
  Json json = {{"url", server.url},
               {"health", server.up ? "up" : "down"},
               {"loadedModels", server.loaded_models}};
  if (!server.detail.empty()) json["detail"] = server.detail;
  if (!server.models_detail.empty()) json["modelsDetail"] = server.models_detail;
  if (server.runtime) json["runtime"] = *server.runtime;
  if (!server.runtime_detail.empty()) json["runtimeDetail"] = server.runtime_detail;
  return json;
}

// Keys in the order of the alphabet: Json, not Document.
Json status_json(const Status& status, const std::vector<std::string>& warnings) {
  Json json = {{"server", server_json(status.server)},
               {"modelStore",
                {{"path", status.store.string()},
                 {"source", status.store_source},
                 {"isFallbackToDefault", false}}},
               {"knownModelCount", catalog_models().size()},
               {"installedModels", Json::array()},
               {"warnings", warnings}};
  for (const InstalledModel& model : status.models) {
    json["installedModels"].push_back(
        {{"id", model.id}, {"category", model.category}, {"size", model.size}});
  }
  if (status.admission) json["admission"] = admission_json(*status.admission);
  if (!status.admission_detail.empty()) json["admissionDetail"] = status.admission_detail;
  return json;
}

// ---- Text ---------------------------------------------------------------------------------------

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

// "12 s", "3 min", "2 h".
std::string age(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, 1e9));
  if (whole < 120) return std::to_string(whole) + " s";
  return whole < 7200 ? std::to_string(whole / 60) + " min" : std::to_string(whole / 3600) + " h";
}

std::string server_text(const ServerProbe& server) {
  std::string text = "  server: " + server.url + (server.up ? " up" : " down") +
                     (server.detail.empty() ? "" : " (" + server.detail + ")") + "\n";
  if (!server.up) return text;
  const bool known = !server.loaded_models.empty() || server.models_detail.empty();
  text += "  loaded models: " +
          (known ? joined(server.loaded_models) : "unknown (" + server.models_detail + ")") + "\n";
  if (!server.runtime) return text + "  runtime: unknown (" + server.runtime_detail + ")\n";
  const auto number = [&](const char* group, const char* key) -> std::string {
    const Json::json_pointer pointer("/" + std::string(group) + "/" + key);
    if (!server.runtime->contains(pointer)) return "";
    const Json& value = server.runtime->at(pointer);
    return value.is_number_integer() ? value.dump() : "";
  };
  const std::string active = number("admission", "activeRequests");
  const std::string queued = number("admission", "queuedRequests");
  if (!active.empty() && !queued.empty()) {
    text += "  requests: " + active + " active, " + queued + " queued\n";
  }
  return text;
}

std::string ticket_text(const AdmissionTicket& ticket) {
  const double since = ledger_time() - ticket.admitted_at.value_or(ticket.queued_at);
  return "    " + std::string(ticket.active ? "running" : "waiting") + "  " + shown(ticket.label) +
         "  " + std::string(resource_class_name(ticket.resource_class)) + ", " +
         std::to_string(ticket.permits) + (ticket.permits == 1 ? " permit" : " permits") +
         ", process " + std::to_string(ticket.process) + ", for " + age(since) + "\n";
}

std::string admission_text(const Status& status) {
  if (!status.admission) return "  jobs: unknown (" + shown(status.admission_detail) + ")\n";
  const AdmissionSnapshot& snapshot = *status.admission;
  std::string text = "  jobs: " + std::to_string(snapshot.active_permits) + " of " +
                     std::to_string(snapshot.capacity_permits) + " permits in use, " +
                     std::to_string(snapshot.queued.size()) + " queued\n";
  for (const AdmissionTicket& ticket : snapshot.active) text += ticket_text(ticket);
  for (const AdmissionTicket& ticket : snapshot.queued) text += ticket_text(ticket);
  const HostSample& host = snapshot.host;
  text += "  memory: " + (host.available ? human_bytes(*host.available) : "unknown") +
          " available, pressure " + std::string(memory_pressure_name(memory_pressure(host))) + "\n";
  return text + "  disk: " + (host.disk ? human_bytes(*host.disk) : "unknown") + " free, " +
         human_bytes(minimum_disk_bytes(host)) + " needed to start a job\n";
}

std::string status_text(const Status& status) {
  std::string text = "mere.run " + version() + "\n" + server_text(status.server) +
                     "  model store: " + shown(status.store.string()) + " (" + status.store_source +
                     ")\n  installed models: " + std::to_string(status.models.size()) + "\n";
  for (const InstalledModel& model : status.models) {
    text += "    " + shown(model.id) + "  " + model.category + "  " + model.size + "\n";
  }
  return text + admission_text(status);
}

int run_status(StatusOptions options, const Context& context) {
  if (options.server.api_key.empty()) {
    const char* variable = std::getenv("MERERUN_API_KEY");
    if (variable != nullptr) options.server.api_key = variable;
  }
  const auto is_blank = [](char c) {
    return std::string_view(" \t\r\n").find(c) != std::string::npos;
  };
  std::string& key = options.server.api_key;
  while (!key.empty() && is_blank(key.back())) key.pop_back();
  while (!key.empty() && is_blank(key.front())) key.erase(0, 1);
  TerminalProgress progress(ProgressStyle::kQuiet);
  const Status status = find_status(options, context, progress);
  if (options.json) {
    print_document(Document(status_json(status, progress.warnings())));
  } else {
    print_result(status_text(status));
  }
  return 0;
}

}  // namespace

void add_status_command(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "status", "Show the server, installed models and the jobs that run or wait");
  const auto options = std::make_shared<StatusOptions>();
  command->add_option("--host", options->server.host, "Host of the server")
      ->type_name("HOST")
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--port",
          [options](const std::string& text) { options->server.port = parse_int(text, "--port"); },
          "Port of the server (default: 8080)")
      ->type_name("N");
  command
      ->add_option("--api-key", options->server.api_key,
                   "Key of the server (default: MERERUN_API_KEY, which other users cannot see)")
      ->type_name("KEY");
  command
      ->add_option_function<std::string>(
          "--timeout-seconds",
          [options](const std::string& text) {
            options->server.timeout_seconds =
                parse_number_within(text, 0, 600, "--timeout-seconds");
          },
          "How long each question to the server may take, at least 0.1 (default: 1)")
      ->type_name("X");
  command->add_flag("--json", options->json, "Print one JSON document; errors too");
  command->callback([options, &context] {
    context.action = [options, &context] { return run_status(*options, context); };
  });
}

}  // namespace mere::cli
