// Progress and cancellation of long work.
//
// Work reports a stage and how far it is; a door prints it. Step is 0-based; the last report of a
// stage has step == total. total 0 means unknown length. Every report is also the place where a
// cancelled request ends: report() throws Cancelled.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace mere {

enum class Stage {
  kWaiting,
  kLoadingModel,
  kLoadingEncoder,
  kEncodingText,
  kEncodingReferenceImages,
  kLoadingTransformer,
  kLoadingLora,
  kDenoising,
  kLoadingVae,
  kDecoding,
  kSaving,
};

// The spelling of the public progress protocol, e.g. "encodingText".
std::string_view stage_name(Stage stage);

// Where a job stands that waits for other jobs of this machine (engine/admission.h).
struct Waiting {
  std::string label;             // the job: "image generate"
  int64_t position = 0;          // in the queue: 1 is next; 0: it waits no more
  int64_t queued = 0;            // jobs in the queue, this one included
  int64_t active_permits = 0;    // taken by jobs that run
  int64_t capacity_permits = 0;  // of the machine
  std::string reason;            // "turn", "permits", "memory" or "pressure"
  double seconds = 0;            // waited so far
};

class Progress {
 public:
  virtual ~Progress() = default;

  // Throws Cancelled when cancellation was asked for.
  void report(Stage stage, int64_t step, int64_t total);
  // The same for a job that waits, as often as it looks; and once more when it waits no more.
  void report_waiting(const Waiting& waiting);
  void check_cancelled() const;
  // A line for the user that is neither an error nor progress ("adapter: applied 12 of 14").
  virtual void note(std::string_view text) = 0;
  // Something the user should know before trusting the result; also listed in the JSON result.
  virtual void warn(std::string_view text) = 0;

  // Safe to call from a signal handler or another thread.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 protected:
  virtual void on_report(Stage stage, int64_t step, int64_t total) = 0;
  virtual void on_waiting(const Waiting&) {}

 private:
  std::atomic<bool> cancelled_{false};
};

// Reports nowhere; for tests and library use.
class SilentProgress : public Progress {
 public:
  void note(std::string_view) override {}
  void warn(std::string_view) override {}

 protected:
  void on_report(Stage, int64_t, int64_t) override {}
};

}  // namespace mere
