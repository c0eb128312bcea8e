#include "engine/admission_ledger.h"

#include <functional>
#include <regex>
#include <set>
#include <unistd.h>

#include "admission_fixture.h"

#include "core/error.h"
#include "core/process.h"

namespace mere {
namespace {

// The example of the specification, with this boot and process.
Json example() {
  return Json::parse(R"({
    "tickets": [{
      "admittedAt": 786190000.25, "bootSessionID": "BOOT",
      "id": "6B0E3C3E-7B43-4A0B-9B1D-0D1F4E3B8A22", "label": "image generate", "permits": 2,
      "processID": 4711, "queuedAt": 786189998.5, "resourceClass": "standard", "state": "active"}],
    "version": 1})");
}

class LedgerTest : public AdmissionFixture {
 protected:
  void write(const std::string& text) {
    fs::create_directories(ledger_folder());
    write_file_atomic(state(), text);
  }
  std::string error_code() {
    try {
      (void)read_ledger(state());
    } catch (const IoError& e) {
      EXPECT_NE(e.info().message.find(state().string()), std::string::npos) << e.what();
      EXPECT_FALSE(e.info().hint.empty());
      return e.info().code;
    }
    return "none";
  }
};

TEST_F(LedgerTest, ReadsTheFileOfTheSpecification) {
  write(example().dump());
  const AdmissionLedger read = ledger();
  ASSERT_EQ(read.tickets.size(), 1U);
  const AdmissionTicket& ticket = read.tickets[0];
  EXPECT_EQ(ticket.id, "6B0E3C3E-7B43-4A0B-9B1D-0D1F4E3B8A22");
  EXPECT_EQ(ticket.process, 4711);
  EXPECT_FALSE(ticket.process_start_ticks);
  EXPECT_EQ(ticket.boot_session, "BOOT");
  EXPECT_EQ(ticket.label, "image generate");
  EXPECT_EQ(ticket.resource_class, ResourceClass::kStandard);
  EXPECT_EQ(ticket.permits, 2);
  EXPECT_EQ(ticket.queued_at, 786189998.5);
  EXPECT_EQ(ticket.admitted_at, 786190000.25);
  EXPECT_TRUE(ticket.active);
  EXPECT_EQ(read.active_permits(), 2);
}

TEST_F(LedgerTest, WritesItPrettyAndSorted) {
  AdmissionLedger one;
  AdmissionTicket ticket;
  ticket.id = "A/B";
  ticket.process = 7;
  ticket.process_start_ticks = 99;
  ticket.boot_session = "boot";
  ticket.label = "image generate";
  ticket.queued_at = 1.5;
  one.tickets.push_back(ticket);
  fs::create_directories(ledger_folder());
  write_ledger(state(), one);
  EXPECT_EQ(read_file(state(), 1 << 20), R"({
  "tickets": [
    {
      "bootSessionID": "boot",
      "id": "A/B",
      "label": "image generate",
      "permits": 1,
      "processID": 7,
      "processStartTicks": 99,
      "queuedAt": 1.5,
      "resourceClass": "standard",
      "state": "queued"
    }
  ],
  "version": 1
}
)");
}

TEST_F(LedgerTest, KeepsMembersThatItDoesNotKnow) {
  Json json = example();
  json["tickets"][0]["deviceIndex"] = 3;
  write(json.dump());
  write_ledger(state(), ledger());
  EXPECT_EQ(Json::parse(read_file(state(), 1 << 20)), json);
}

TEST_F(LedgerTest, AMissingFileIsAnEmptyQueue) { EXPECT_TRUE(ledger().tickets.empty()); }

TEST_F(LedgerTest, ADamagedFileIsAnErrorAndStays) {
  using Change = std::function<void(Json&)>;
  const auto ticket = [](const char* key, const Json& value) -> Change {
    return [=](Json& json) { json["tickets"][0][key] = value; };
  };
  const auto without = [](const char* key) -> Change {
    return [=](Json& json) { json["tickets"][0].erase(key); };
  };
  std::vector<std::string> broken = {"",
                                     " ",
                                     "{",
                                     "[]",
                                     "null",
                                     "{}",
                                     R"({"version": 1})",
                                     R"({"version": 1, "tickets": {}})",
                                     R"({"version": 1, "tickets": [1]})",
                                     R"({"version": 1, "version": 1, "tickets": []})",
                                     R"({"version": "1", "tickets": []})",
                                     std::string("{\"version\": 1, \"tickets\": []}\0", 30)};
  const std::vector<Change> changes = {without("id"),
                                       without("processID"),
                                       without("bootSessionID"),
                                       without("label"),
                                       without("resourceClass"),
                                       without("permits"),
                                       without("queuedAt"),
                                       without("state"),
                                       ticket("id", ""),
                                       ticket("id", 5),
                                       ticket("id", std::string(300, 'x')),
                                       ticket("processID", 0),
                                       ticket("processID", -1),
                                       ticket("processID", 1e18),
                                       ticket("processID", 4711.5),
                                       ticket("permits", 0),
                                       ticket("permits", 100'000),
                                       ticket("queuedAt", "now"),
                                       ticket("queuedAt", 1e300),
                                       ticket("admittedAt", "now"),
                                       ticket("resourceClass", "huge"),
                                       ticket("state", "gone"),
                                       ticket("processStartTicks", -1)};
  for (const Change& change : changes) {
    Json json = example();
    change(json);
    broken.push_back(json.dump());
  }
  for (const std::string& text : broken) {
    write(text);
    EXPECT_EQ(error_code(), "admission_ledger_damaged") << text;
    EXPECT_THROW(take(ResourceClass::kSmall), IoError);
    EXPECT_EQ(read_file(state(), 1 << 20), text);
  }
}

TEST_F(LedgerTest, AFileThatIsTooLargeIsDamaged) {
  write(std::string(5 << 20, ' '));
  EXPECT_EQ(error_code(), "admission_ledger_damaged");
}

TEST_F(LedgerTest, AnotherVersionIsAnErrorAndStays) {
  for (const int version : {0, 2, 99}) {
    Json json = example();
    json["version"] = version;
    write(json.dump());
    EXPECT_EQ(error_code(), "admission_ledger_version");
    EXPECT_THROW(queue().snapshot(), IoError);
    EXPECT_EQ(Json::parse(read_file(state(), 1 << 20)), json);
  }
}

TEST_F(LedgerTest, WhatIsNoFileIsAnError) {
  fs::create_directories(state());
  EXPECT_THROW(take(ResourceClass::kSmall), IoError);
  fs::remove(state());
  fs::create_directories(ledger_folder());
  fs::remove(ledger_folder() / "state.lock");
  fs::create_symlink("elsewhere", ledger_folder() / "state.lock");
  EXPECT_THROW(take(ResourceClass::kSmall), IoError);
  EXPECT_FALSE(fs::exists(ledger_folder() / "elsewhere"));
}

TEST_F(LedgerTest, IdsAreUpperCaseUuidsAndDiffer) {
  const std::regex form("[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}");
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const std::string id = new_ticket_id();
    EXPECT_TRUE(std::regex_match(id, form)) << id;
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 100U);
}

TEST_F(LedgerTest, TimeCountsFrom2001) {
  const double unix_seconds = static_cast<double>(::time(nullptr));
  EXPECT_NEAR(ledger_time(), unix_seconds - 978307200, 2);
}

}  // namespace
}  // namespace mere
