#include "engine/admission_ledger.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sys/random.h>
#include <tuple>

#include "core/error.h"
#include "core/process.h"

namespace mere {
namespace {

constexpr int kVersion = 1;
constexpr size_t kMaxLedgerBytes = size_t{4} << 20;
constexpr size_t kMaxTickets = 10'000;
constexpr size_t kMaxTextBytes = 200;
constexpr int64_t kMaxPermits = 1000;
// From the Unix epoch to 2001-01-01T00:00:00Z.
constexpr double kReferenceEpochSeconds = 978'307'200;
constexpr double kMaxSeconds = 1e12;

const char* const kHint =
    "remove the file when no job of mere.run is running; it holds nothing but the queue";

std::string text_member(const Json& json, const char* key, const std::string& source) {
  const std::string text = json_string_or(json, key, "", source);
  if (text.empty() || text.size() > kMaxTextBytes) {
    throw IoError{
        {"json_invalid", source, source + ": \"" + key + "\" is missing, empty or too long", ""}};
  }
  return text;
}

double seconds_member(const Json& json, const char* key, const std::string& source) {
  const double missing = -kMaxSeconds;
  const double seconds = json_number_or(json, key, -kMaxSeconds, kMaxSeconds, missing, source);
  if (seconds == missing) {
    throw IoError{{"json_invalid", source, source + ": \"" + key + "\" is missing", ""}};
  }
  return seconds;
}

AdmissionTicket ticket_of(const Json& json, const std::string& source) {
  AdmissionTicket ticket;
  ticket.id = text_member(json, "id", source);
  ticket.process = json_int(json, "processID", 1, INT32_MAX, source);
  if (json.contains("processStartTicks")) {
    ticket.process_start_ticks =
        static_cast<uint64_t>(json_int(json, "processStartTicks", 0, INT64_MAX, source));
  }
  ticket.boot_session = text_member(json, "bootSessionID", source);
  ticket.label = text_member(json, "label", source);
  const std::string name = text_member(json, "resourceClass", source);
  const std::optional<ResourceClass> resource_class = find_resource_class(name);
  const std::string state = text_member(json, "state", source);
  if (!resource_class || (state != "queued" && state != "active")) {
    throw IoError{{"json_invalid", source,
                   source + ": a ticket of no known class or state: \"" + printable(name, 40) +
                       "\", \"" + printable(state, 40) + "\"",
                   ""}};
  }
  ticket.resource_class = *resource_class;
  ticket.active = state == "active";
  ticket.permits = static_cast<int>(json_int(json, "permits", 1, kMaxPermits, source));
  ticket.queued_at = seconds_member(json, "queuedAt", source);
  if (json.contains("admittedAt")) ticket.admitted_at = seconds_member(json, "admittedAt", source);
  ticket.unknown = json;
  return ticket;
}

Json json_of(const AdmissionTicket& ticket) {
  Json json = ticket.unknown;
  json["id"] = ticket.id;
  json["processID"] = ticket.process;
  if (ticket.process_start_ticks) json["processStartTicks"] = *ticket.process_start_ticks;
  json["bootSessionID"] = ticket.boot_session;
  json["label"] = ticket.label;
  json["resourceClass"] = resource_class_name(ticket.resource_class);
  json["permits"] = ticket.permits;
  json["queuedAt"] = ticket.queued_at;
  if (ticket.admitted_at) json["admittedAt"] = *ticket.admitted_at;
  json["state"] = ticket.active ? "active" : "queued";
  return json;
}

AdmissionLedger ledger_of(const std::string& text, const fs::path& path) {
  const std::string source = path.string();
  const Json json = parse_json(text, source);
  const int64_t version = json_int(json, "version", 0, INT32_MAX, source);
  if (version != kVersion) {
    throw IoError{{"admission_ledger_version", source,
                   source + ": version " + std::to_string(version) +
                       " of the queue of jobs, and this program knows version " +
                       std::to_string(kVersion),
                   std::string("update mere.run, or ") + kHint}};
  }
  const auto list = json.find("tickets");
  if (list == json.end() || !list->is_array() || list->size() > kMaxTickets) {
    throw IoError{{"json_invalid", source, source + ": \"tickets\" is not a list", ""}};
  }
  AdmissionLedger ledger;
  for (const Json& ticket : *list) ledger.tickets.push_back(ticket_of(ticket, source));
  ledger.sort();
  return ledger;
}

}  // namespace

AdmissionTicket* AdmissionLedger::find(const std::string& id) {
  const auto it = std::ranges::find(tickets, id, &AdmissionTicket::id);
  return it == tickets.end() ? nullptr : &*it;
}

int AdmissionLedger::active_permits() const {
  int permits = 0;
  for (const AdmissionTicket& ticket : tickets) permits += ticket.active ? ticket.permits : 0;
  return permits;
}

void AdmissionLedger::sort() {
  std::ranges::sort(tickets, [](const AdmissionTicket& a, const AdmissionTicket& b) {
    return std::tie(a.queued_at, a.id) < std::tie(b.queued_at, b.id);
  });
}

bool AdmissionLedger::prune(const std::string& boot_session) {
  return std::erase_if(tickets, [&](const AdmissionTicket& ticket) {
           return ticket.boot_session != boot_session ||
                  !process_is_alive(static_cast<pid_t>(ticket.process), ticket.process_start_ticks);
         }) > 0;
}

AdmissionLedger read_ledger(const fs::path& path) {
  std::error_code ec;
  if (!fs::exists(path, ec) && !ec) return {};
  std::string problem;
  try {
    return ledger_of(read_file(path, kMaxLedgerBytes), path);
  } catch (const IoError& e) {
    const bool damaged = e.info().code == "json_invalid" || e.info().code == "file_too_large";
    if (!damaged) throw;
    problem = e.info().message;
  }
  throw IoError{{"admission_ledger_damaged", path.string(),
                 "the queue of jobs is damaged: " + problem, kHint}};
}

void write_ledger(const fs::path& path, const AdmissionLedger& ledger) {
  Json tickets = Json::array();
  for (const AdmissionTicket& ticket : ledger.tickets) tickets.push_back(json_of(ticket));
  const Json json = {{"version", kVersion}, {"tickets", std::move(tickets)}};
  write_private_file_atomic(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

double ledger_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count() - kReferenceEpochSeconds;
}

std::string new_ticket_id() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw InternalError{{"random_failed", "",
                         std::string("no random numbers from the system: ") + std::strerror(errno),
                         ""}};
  }
  // Version 4, variant 1 (RFC 9562).
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0F) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3F) | 0x80);
  std::string id;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02X", static_cast<unsigned>(bytes[i]));
    id += (i == 4 || i == 6 || i == 8 || i == 10) ? "-" : "";
    id += hex.data();
  }
  return id;
}

}  // namespace mere
