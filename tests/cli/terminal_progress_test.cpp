#include "cli/terminal_progress.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <memory>

#include "core/error.h"

namespace mere::cli {
namespace {

// A progress that writes into a temporary file, and what it wrote.
class Written {
 public:
  Written(ProgressStyle style, bool is_terminal, int columns = 80)
      : file_(std::tmpfile()), progress(style, file_.get(), is_terminal, columns) {}

  std::string text() {
    std::rewind(file_.get());
    std::string text;
    std::array<char, 4096> buffer{};
    while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), file_.get())) {
      text.append(buffer.data(), n);
    }
    return text;
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Closer> file_;

 public:
  TerminalProgress progress;
};

void draw_one_picture(Progress& progress) {
  progress.report(Stage::kEncodingText, 0, 1);
  progress.report(Stage::kEncodingText, 1, 1);
  for (int step = 0; step <= 4; ++step) progress.report(Stage::kDenoising, step, 4);
  progress.report(Stage::kDecoding, 0, 1);
  progress.report(Stage::kDecoding, 1, 1);
}

TEST(TerminalProgress, PlainLinesWithoutATerminal) {
  Written written(ProgressStyle::kHuman, false);
  written.progress.note("seed: 5");
  draw_one_picture(written.progress);
  written.progress.warn("odd");
  EXPECT_EQ(written.text(),
            "seed: 5\nEncoding text\nGenerating: 4 steps\nDecoding\nmere.run: warning: odd\n");
}

TEST(TerminalProgress, CountsOnATerminal) {
  Written written(ProgressStyle::kHuman, true);
  draw_one_picture(written.progress);
  const std::string text = written.text();
  EXPECT_NE(text.find("\r\x1b[KGenerating (1/4) [---"), std::string::npos) << text;
  EXPECT_NE(text.find("Generating (2/4) [###"), std::string::npos);
  EXPECT_NE(text.find("/step, "), std::string::npos);
  EXPECT_NE(text.find(" left"), std::string::npos);
  EXPECT_NE(text.find("Generating (4/4)"), std::string::npos);
  EXPECT_NE(text.find("Decoding ("), std::string::npos);
  EXPECT_EQ(text.back(), '\n');
}

TEST(TerminalProgress, AStageMayEndWithAnotherCount) {
  Written written(ProgressStyle::kHuman, true);
  written.progress.report(Stage::kEncodingText, 2, 3);
  written.progress.report(Stage::kEncodingText, 1, 1);
  const std::string text = written.text();
  EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
}

TEST(TerminalProgress, AStageRunsAgainForTheNextPicture) {
  Written written(ProgressStyle::kHuman, false);
  draw_one_picture(written.progress);
  draw_one_picture(written.progress);
  EXPECT_EQ(written.text(),
            "Encoding text\nGenerating: 4 steps\nDecoding\n"
            "Encoding text\nGenerating: 4 steps\nDecoding\n");
}

TEST(TerminalProgress, FitsANarrowTerminal) {
  Written written(ProgressStyle::kHuman, true, 20);
  written.progress.report(Stage::kDenoising, 1, 4);
  EXPECT_EQ(written.text().find('['), written.text().find("\x1b[K") + 1);
}

TEST(TerminalProgress, NoLineIsWiderThanTheTerminal) {
  for (int columns = 1; columns <= 100; ++columns) {
    Written written(ProgressStyle::kHuman, true, columns);
    written.progress.report(Stage::kEncodingReferenceImages, 0, 12);
    written.progress.report(Stage::kEncodingReferenceImages, 12, 12);
    draw_one_picture(written.progress);
    std::string text = written.text();
    for (size_t at = text.find("\r\x1b[K"); at != std::string::npos; at = text.find("\r\x1b[K")) {
      text.replace(at, 4, "\n");
    }
    size_t start = 0;
    while (start < text.size()) {
      const size_t end = text.find('\n', start);
      EXPECT_LE(end - start, static_cast<size_t>(std::max(1, columns - 1))) << columns;
      start = end + 1;
    }
  }
}

TEST(TerminalProgress, AWarningDoesNotBreakTheLine) {
  Written written(ProgressStyle::kHuman, true);
  written.progress.report(Stage::kDenoising, 0, 2);
  written.progress.warn("odd\x1b[2J");
  const std::string text = written.text();
  EXPECT_NE(text.find("\r\x1b[Kmere.run: warning: odd?[2J\nGenerating (1/2)"), std::string::npos);
}

TEST(TerminalProgress, QuietKeepsWarnings) {
  Written written(ProgressStyle::kQuiet, true);
  written.progress.note("seed: 5");
  draw_one_picture(written.progress);
  EXPECT_EQ(written.text(), "");
  written.progress.warn("odd");
  EXPECT_EQ(written.text(), "mere.run: warning: odd\n");
  EXPECT_EQ(written.progress.warnings(), std::vector<std::string>{"odd"});
}

TEST(TerminalProgress, JsonLinesWithoutRepeats) {
  Written written(ProgressStyle::kJson, false);
  written.progress.note("seed: 5");
  written.progress.report(Stage::kLoadingLora, 0, 0);
  written.progress.report(Stage::kLoadingLora, 0, 0);
  written.progress.report(Stage::kDenoising, 0, 1);
  written.progress.report(Stage::kDenoising, 1, 1);
  written.progress.report(Stage::kDenoising, 1, 1);
  written.progress.report(Stage::kDenoising, 0, 1);
  EXPECT_EQ(written.text(), R"({"event":"progress","stage":"loadingLoRA","step":0,"total_steps":0})"
                            "\n"
                            R"({"event":"progress","stage":"denoising","step":0,"total_steps":1})"
                            "\n"
                            R"({"event":"progress","stage":"denoising","step":1,"total_steps":1})"
                            "\n"
                            R"({"event":"progress","stage":"denoising","step":0,"total_steps":1})"
                            "\n");
}

Waiting waiting_at(int64_t position) {
  return {.label = "image generate",
          .position = position,
          .queued = 3,
          .active_permits = 2,
          .capacity_permits = 2,
          .reason = position == 0  ? ""
                    : position > 1 ? "turn"
                                   : "permits",
          .seconds = 12.3};
}

TEST(TerminalProgress, WaitingIsOneLineAndStartingAnother) {
  Written written(ProgressStyle::kHuman, false);
  for (const int64_t position : {2, 2, 1, 0}) written.progress.report_waiting(waiting_at(position));
  EXPECT_EQ(written.text(),
            "waiting to start image generate: 2 of 2 permits in use, 3 queued, position 2\n"
            "image generate starts after waiting 12 s\n");
}

TEST(TerminalProgress, WaitingIsDrawnOverOnATerminal) {
  Written written(ProgressStyle::kHuman, true, 100);
  for (const int64_t position : {2, 2, 1, 0}) written.progress.report_waiting(waiting_at(position));
  const std::string text = written.text();
  EXPECT_EQ(std::ranges::count(text, '\r'), 2);
  EXPECT_TRUE(text.ends_with("position 1\nimage generate starts after waiting 12 s\n")) << text;
  Written narrow(ProgressStyle::kHuman, true, 20);
  narrow.progress.report_waiting(waiting_at(1));
  EXPECT_EQ(narrow.text(), "\r\x1b[Kwaiting to start im");
}

TEST(TerminalProgress, WaitingForMemorySaysSo) {
  Written written(ProgressStyle::kHuman, false);
  Waiting waiting = waiting_at(1);
  waiting.reason = "memory";
  written.progress.report_waiting(waiting);
  EXPECT_NE(written.text().find("position 1, not enough memory yet\n"), std::string::npos);
}

TEST(TerminalProgress, WaitingAsJsonWheneverItChanges) {
  Written written(ProgressStyle::kJson, false);
  for (const int64_t position : {2, 2, 1, 0}) written.progress.report_waiting(waiting_at(position));
  const std::string head =
      R"({"event":"progress","stage":"waiting","step":0,"total_steps":0,"position":)";
  const std::string tail = R"(,"queued":3,"active_permits":2,"capacity_permits":2,"reason":)";
  EXPECT_EQ(written.text(), head + "2" + tail + "\"turn\"}\n" + head + "1" + tail +
                                "\"permits\"}\n" + head + "0" + tail + "\"\"}\n");
}

TEST(TerminalProgress, WaitingIsNotToldQuietlyAndEndsByCancelling) {
  Written written(ProgressStyle::kQuiet, false);
  written.progress.report_waiting(waiting_at(1));
  written.progress.cancel();
  EXPECT_THROW(written.progress.report_waiting(waiting_at(1)), Cancelled);
  EXPECT_EQ(written.text(), "");
}

TEST(TerminalProgress, CancelsAtTheNextReport) {
  Written written(ProgressStyle::kHuman, false);
  written.progress.cancel();
  EXPECT_THROW(written.progress.report(Stage::kDenoising, 0, 4), Cancelled);
}

}  // namespace
}  // namespace mere::cli
