// Progress of a download on stderr: one line drawn over and over on a terminal, a line now and then
// elsewhere, or JSON objects.
//
//   [image-klein-nano] 42%  1.9 GB / 4.6 GB  85 MB/s  ETA 0:32
#pragma once

#include <chrono>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "catalog/transfer.h"
#include "cli/terminal_progress.h"

namespace mere::cli {

class PullProgress : public TransferObserver {
 public:
  explicit PullProgress(ProgressStyle style);
  // For tests: writes to `stream` as if it were (or were not) a terminal of `columns` columns.
  PullProgress(ProgressStyle style, std::FILE* stream, bool is_terminal, int columns);
  ~PullProgress() override;

  // What the next reports are about.
  void set_model(const std::string& id);

  void note(std::string_view text) override;
  void warn(std::string_view text) override;
  void on_transfer(const TransferState& state) override;

  void finish_line();
  const std::vector<std::string>& warnings() const { return warnings_; }

 protected:
  void on_report(Stage, int64_t, int64_t) override {}

 private:
  using Clock = std::chrono::steady_clock;
  struct Sample {
    Clock::time_point time;
    int64_t received;
  };

  double rate_bytes_per_s(const TransferState& state, Clock::time_point now);
  void put(std::string_view text);
  void put_json(const TransferState& state, double rate);

  ProgressStyle style_;
  std::FILE* stream_;
  bool live_;
  int columns_;
  std::string id_{};
  std::deque<Sample> samples_{};
  Clock::time_point last_drawn_{};
  int last_percent_ = -1;
  bool ended_ = false;
  bool line_open_ = false;
  std::vector<std::string> warnings_{};
};

// "0:32", "1:02:03".
std::string clock_text(double seconds);

}  // namespace mere::cli
