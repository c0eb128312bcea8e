#include "cli/terminal_progress.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/output.h"

namespace mere::cli {
namespace {

constexpr int kDefaultColumns = 80;
constexpr int kMinBarColumns = 5;
constexpr int kMaxBarColumns = 30;

std::string_view label(Stage stage) {
  switch (stage) {
    case Stage::kWaiting:
      return "Waiting";
    case Stage::kLoadingModel:
      return "Loading model";
    case Stage::kLoadingEncoder:
      return "Loading text encoder";
    case Stage::kEncodingText:
      return "Encoding text";
    case Stage::kEncodingReferenceImages:
      return "Encoding reference images";
    case Stage::kLoadingTransformer:
      return "Loading transformer";
    case Stage::kLoadingLora:
      return "Loading LoRA";
    case Stage::kDenoising:
      return "Generating";
    case Stage::kLoadingVae:
      return "Loading VAE";
    case Stage::kDecoding:
      return "Decoding";
    case Stage::kSaving:
      return "Saving";
  }
  return "Working";
}

bool is_counted(Stage stage, int64_t total) { return stage == Stage::kDenoising || total > 1; }

// Of the terminal itself, else what COLUMNS says.
int columns_of(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* variable = std::getenv("COLUMNS");
  const std::string_view text = variable == nullptr ? "" : variable;
  int columns = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), columns);
  const bool whole = problem == std::errc() && end == text.data() + text.size();
  return whole && columns > 0 && columns <= 10'000 ? columns : kDefaultColumns;
}

// "0.42 s", "12 s", "3 min 05 s".
std::string duration(double seconds) {
  std::array<char, 48> text{};
  if (seconds < 10) {
    std::snprintf(text.data(), text.size(), "%.2f s", seconds);
  } else if (seconds < 120) {
    std::snprintf(text.data(), text.size(), "%.0f s", seconds);
  } else {
    const auto whole = static_cast<long long>(std::min(seconds, 1e9));
    std::snprintf(text.data(), text.size(), "%lld min %02lld s", whole / 60, whole % 60);
  }
  return text.data();
}

// "waiting to start image generate: 2 of 2 permits in use, 3 queued, position 2".
std::string waiting_text(const Waiting& waiting) {
  std::string text =
      "waiting to start " + waiting.label + ": " + std::to_string(waiting.active_permits) + " of " +
      std::to_string(waiting.capacity_permits) + " permits in use, " +
      std::to_string(waiting.queued) + " queued, position " + std::to_string(waiting.position);
  const bool short_of_memory = waiting.reason == "memory" || waiting.reason == "pressure";
  return text + (short_of_memory ? ", not enough memory yet" : "");
}

std::string waiting_json(const Waiting& waiting) {
  return R"({"event":"progress","stage":"waiting","step":0,"total_steps":0,"position":)" +
         std::to_string(waiting.position) + ",\"queued\":" + std::to_string(waiting.queued) +
         ",\"active_permits\":" + std::to_string(waiting.active_permits) +
         ",\"capacity_permits\":" + std::to_string(waiting.capacity_permits) + ",\"reason\":\"" +
         waiting.reason + "\"}";
}

}  // namespace

TerminalProgress::TerminalProgress(ProgressStyle style)
    : TerminalProgress(style, stderr, ::isatty(STDERR_FILENO) == 1, 0) {
  live_ = is_terminal_ && terminal_has_codes();
}

TerminalProgress::TerminalProgress(ProgressStyle style, std::FILE* stream, bool is_terminal,
                                   int columns)
    : style_(style),
      stream_(stream),
      is_terminal_(is_terminal),
      live_(is_terminal),
      colour_(is_terminal && may_colour(stream)),
      columns_(columns) {}

TerminalProgress::~TerminalProgress() { finish_line(); }

void TerminalProgress::note(std::string_view text) {
  if (style_ != ProgressStyle::kHuman) return;
  finish_line();
  put(shown(text) + "\n");
}

void TerminalProgress::warn(std::string_view text) {
  warnings_.emplace_back(text);
  const std::string interrupted = line_open_ ? line_ : "";
  if (line_open_) put("\r\x1b[K");
  put(std::string("mere.run: ") + (colour_ ? "\x1b[33mwarning:\x1b[0m " : "warning: ") +
      shown(text) + "\n");
  if (line_open_) put(interrupted);
}

void TerminalProgress::finish_line() {
  if (line_open_) put("\n");
  line_open_ = false;
  line_.clear();
}

void TerminalProgress::on_report(Stage stage, int64_t step, int64_t total) {
  const Position at{step, total};
  const auto before = last_.find(stage);
  const bool repeated = before != last_.end() && before->second == at;
  const bool ends = total > 0 && step >= total;
  // A stage runs again for every picture: its counter falls, though not to its end.
  const bool starts = !any_stage_ || stage != stage_ || before == last_.end() ||
                      (step < before->second.step && !ends);
  if (repeated && (style_ == ProgressStyle::kJson || !starts)) return;
  last_[stage] = at;
  if (style_ == ProgressStyle::kJson) {
    put("{\"event\":\"progress\",\"stage\":\"" + std::string(stage_name(stage)) + "\",\"step\":" +
        std::to_string(step) + ",\"total_steps\":" + std::to_string(total) + "}\n");
  } else if (style_ == ProgressStyle::kHuman) {
    report_human(stage, at, starts);
  }
  stage_ = stage;
  any_stage_ = true;
}

// People get a line when the job first waits and one when it starts, and on a terminal the first is
// drawn over as the queue moves; programs get an object whenever something changes.
void TerminalProgress::on_waiting(const Waiting& waiting) {
  const bool first = last_waiting_.empty();
  const bool ends = waiting.position == 0;
  if (style_ == ProgressStyle::kQuiet) return;
  const std::string text =
      style_ == ProgressStyle::kJson ? waiting_json(waiting) : waiting_text(waiting);
  if (text == last_waiting_) return;
  last_waiting_ = text;
  if (style_ == ProgressStyle::kJson) {
    put(text + "\n");
  } else if (ends) {
    note(waiting.label + " starts after waiting " + duration(waiting.seconds));
    last_waiting_.clear();
  } else if (live_) {
    draw(shown(text).substr(0, static_cast<size_t>(room())));
  } else if (first) {
    put(shown(text) + "\n");
  }
}

void TerminalProgress::report_human(Stage stage, Position at, bool starts) {
  const bool counted = is_counted(stage, at.total);
  const bool ends = at.total > 0 && at.step >= at.total;
  if (starts) {
    finish_line();
    stage_start_ = Clock::now();
  }
  if (!live_) {
    if (!starts || ends) return;
    std::string text(label(stage));
    if (stage == Stage::kDenoising)
      text += ": " + std::to_string(at.total) + (at.total == 1 ? " step" : " steps");
    put(text + "\n");
    return;
  }
  draw(counted ? counter_text(stage, at) : stage_text(stage, ends));
  if (ends) finish_line();
}

// One column stays free: some terminals wrap as soon as the last one is taken.
int64_t TerminalProgress::room() const {
  return std::max(1, (columns_ > 0 ? columns_ : columns_of(stream_)) - 1);
}

// "Decoding (0.12 s)".
std::string TerminalProgress::stage_text(Stage stage, bool ends) const {
  const std::string head(label(stage));
  const std::string tail = ends ? " (" + duration(stage_seconds()) + ")" : "";
  const auto most = static_cast<size_t>(room());
  return head.size() + tail.size() <= most ? head + tail : head.substr(0, most);
}

// "Generating (2/4) [#####-----] 0.21 s/step, 0.63 s left". The step under way counts from one; the
// bar shows what is done. A narrow terminal gets no bar, then no times, then a shorter label.
std::string TerminalProgress::counter_text(Stage stage, Position at) const {
  const int64_t total = std::max<int64_t>(1, at.total);
  const int64_t done = std::clamp<int64_t>(at.step, 0, total);
  const std::string head = std::string(label(stage)) + " (" +
                           std::to_string(std::min(done + 1, total)) + "/" + std::to_string(total) +
                           ")";
  const int64_t most = room();
  const std::string short_head = head.substr(0, static_cast<size_t>(most));
  if (stage != Stage::kDenoising) return short_head;
  std::string tail;
  if (done > 0) {
    const double per_step = stage_seconds() / static_cast<double>(done);
    tail = " " + duration(per_step) + "/step, " +
           (done == total ? duration(stage_seconds())
                          : duration(per_step * static_cast<double>(total - done)) + " left");
  }
  const auto text_columns = static_cast<int64_t>(head.size() + tail.size());
  if (text_columns > most) return short_head;
  const int64_t width = std::min<int64_t>(kMaxBarColumns, most - text_columns - 3);
  if (width < kMinBarColumns) return head + tail;
  const auto filled = static_cast<size_t>(width * done / total);
  std::string bar(filled, '#');
  if (colour_) bar = "\x1b[32m" + bar + "\x1b[0m";
  return head + " [" + bar + std::string(static_cast<size_t>(width) - filled, '-') + "]" + tail;
}

double TerminalProgress::stage_seconds() const {
  return std::chrono::duration<double>(Clock::now() - stage_start_).count();
}

void TerminalProgress::draw(const std::string& text) {
  line_ = text;
  line_open_ = true;
  put("\r\x1b[K" + text);
}

void TerminalProgress::put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

}  // namespace mere::cli
