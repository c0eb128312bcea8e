#include "cli/pull_progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/output.h"
#include "core/system.h"

namespace mere::cli {
namespace {

constexpr std::chrono::milliseconds kRedrawEvery{200};
constexpr std::chrono::milliseconds kJsonEvery{500};
constexpr std::chrono::seconds kPlainEvery{30};
constexpr std::chrono::seconds kRateWindow{5};
constexpr int kDefaultColumns = 80;
constexpr double kLongestShown_s = 100.0 * 3600;

int percent_of(const TransferState& state) {
  if (state.bytes_total <= 0) return 100;
  return static_cast<int>(100.0 * static_cast<double>(state.bytes_done) /
                          static_cast<double>(state.bytes_total));
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, kLongestShown_s));
  std::array<char, 32> text{};
  if (whole >= 3600) {
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%lld:%02lld", whole / 60, whole % 60);
  }
  return text.data();
}

PullProgress::PullProgress(ProgressStyle style)
    : PullProgress(style, stderr, ::isatty(STDERR_FILENO) == 1 && terminal_has_codes(), 0) {}

PullProgress::PullProgress(ProgressStyle style, std::FILE* stream, bool is_terminal, int columns)
    : style_(style), stream_(stream), live_(is_terminal), columns_(columns) {}

PullProgress::~PullProgress() { finish_line(); }

void PullProgress::set_model(const std::string& id) {
  finish_line();
  id_ = id;
  samples_.clear();
  last_drawn_ = {};
  last_percent_ = -1;
  ended_ = false;
}

void PullProgress::note(std::string_view text) {
  if (style_ != ProgressStyle::kHuman) return;
  if (line_open_) put("\r\x1b[K");
  line_open_ = false;
  put(shown(text) + "\n");
}

void PullProgress::warn(std::string_view text) {
  warnings_.emplace_back(text);
  if (line_open_) put("\r\x1b[K");
  line_open_ = false;
  put("mere.run: warning: " + shown(text) + "\n");
}

void PullProgress::finish_line() {
  if (line_open_) put("\n");
  line_open_ = false;
}

double PullProgress::rate_bytes_per_s(const TransferState& state, Clock::time_point now) {
  samples_.push_back({now, state.bytes_received});
  while (samples_.size() > 2 && now - samples_.front().time > kRateWindow) samples_.pop_front();
  const double seconds = std::chrono::duration<double>(now - samples_.front().time).count();
  if (seconds < 0.1) return 0;
  return static_cast<double>(state.bytes_received - samples_.front().received) / seconds;
}

void PullProgress::on_transfer(const TransferState& state) {
  const auto now = Clock::now();
  const double rate = rate_bytes_per_s(state, now);
  const bool ends = state.files_done == state.files_total;
  if (style_ == ProgressStyle::kQuiet || ended_) return;
  ended_ = ends;
  const auto since = now - last_drawn_;
  if (style_ == ProgressStyle::kJson) {
    if (!ends && since < kJsonEvery) return;
    last_drawn_ = now;
    put_json(state, rate);
    return;
  }
  const int percent = percent_of(state);
  if (!live_) {
    const bool step = last_percent_ < 0 || percent / 10 > last_percent_ / 10;
    if (!ends && !step && since < kPlainEvery) return;
  } else if (!ends && since < kRedrawEvery) {
    return;
  }
  last_drawn_ = now;
  last_percent_ = percent;
  std::string text = "[" + id_ + "] " + std::to_string(percent) + "%  " +
                     human_bytes(state.bytes_done) + " / " + human_bytes(state.bytes_total);
  if (rate > 0 && !ends) {
    text += "  " + human_bytes(static_cast<int64_t>(rate)) + "/s  ETA " +
            clock_text(static_cast<double>(state.bytes_total - state.bytes_done) / rate);
  }
  if (!live_) {
    put(text + "\n");
    return;
  }
  int columns = columns_;
  winsize size{};
  if (columns <= 0) {
    const bool known = ::ioctl(::fileno(stream_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    columns = known ? size.ws_col : kDefaultColumns;
  }
  put("\r\x1b[K" + text.substr(0, static_cast<size_t>(std::max(1, columns - 1))));
  line_open_ = true;
  if (ends) finish_line();
}

void PullProgress::put_json(const TransferState& state, double rate) {
  Document event = {{"event", "progress"},
                    {"stage", "downloading"},
                    {"step", state.bytes_done},
                    {"total_steps", state.bytes_total},
                    {"id", id_},
                    {"files", state.files_done},
                    {"total_files", state.files_total},
                    {"bytes_per_second", std::llround(rate)}};
  const auto left = static_cast<double>(state.bytes_total - state.bytes_done);
  event["eta_seconds"] = rate > 0 ? Document(std::llround(left / rate)) : Document(nullptr);
  put(event.dump(-1, ' ', false, Document::error_handler_t::replace) + "\n");
}

void PullProgress::put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

}  // namespace mere::cli
