// Progress on stderr: for people (a live line on a terminal that has cursor codes, never wider than
// it; plain lines otherwise), for programs
// (one JSON object a line), or silent.
#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "core/progress.h"

namespace mere::cli {

enum class ProgressStyle {
  kHuman,
  kQuiet,  // warnings only
  kJson,   // {"event":"progress","stage":S,"step":N,"total_steps":T}, and warnings as text. While
           // the job waits for others S is "waiting" and position, queued, active_permits,
           // capacity_permits and reason follow
};

class TerminalProgress : public Progress {
 public:
  explicit TerminalProgress(ProgressStyle style);
  // For tests: writes to `stream` as if it were (or were not) a terminal with cursor codes and
  // `columns` columns.
  TerminalProgress(ProgressStyle style, std::FILE* stream, bool is_terminal, int columns);
  ~TerminalProgress() override;

  void note(std::string_view text) override;
  void warn(std::string_view text) override;

  // Ends a line that is still being drawn.
  void finish_line();
  // Everything given to warn(), in order.
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool is_terminal() const { return is_terminal_; }

 protected:
  void on_report(Stage stage, int64_t step, int64_t total) override;
  void on_waiting(const Waiting& waiting) override;

 private:
  struct Position {
    int64_t step = -1;
    int64_t total = -1;
    bool operator==(const Position&) const = default;
  };
  using Clock = std::chrono::steady_clock;

  void report_human(Stage stage, Position at, bool starts);
  std::string counter_text(Stage stage, Position at) const;
  std::string stage_text(Stage stage, bool ends) const;
  int64_t room() const;
  double stage_seconds() const;
  void draw(const std::string& text);
  void put(std::string_view text);

  ProgressStyle style_;
  std::FILE* stream_;
  bool is_terminal_;
  bool live_;  // the line of a stage is drawn over and over
  bool colour_;
  int columns_;  // 0: asked for each time, for a terminal may be resized
  std::vector<std::string> warnings_;
  std::map<Stage, Position> last_;
  std::string last_waiting_;
  Stage stage_ = Stage::kLoadingModel;
  bool any_stage_ = false;
  Clock::time_point stage_start_;
  bool line_open_ = false;
  std::string line_;  // what stands on the open line
};

}  // namespace mere::cli
