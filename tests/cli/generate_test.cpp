// Pictures drawn by the program with the model that ships with it.
#include <chrono>
#include <gtest/gtest.h>
#include <map>
#include <signal.h>
#include <sstream>

#include "program.h"

#include "core/json.h"
#include "core/system.h"
#include "media/image.h"

namespace mere {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(Generate, DrawsWithTheShippedModelWhenNothingIsAsked) {
  const Program program;
  const ProgramResult result =
      program.run({"image", "generate", "--prompt", "a red apple", "--output", "apple.png"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, (program.folder() / "apple.png").string() + "\n");
  EXPECT_TRUE(contains(result.err, "image-emoji-nano (no other image model is installed"));
  EXPECT_TRUE(contains(result.err, "seed: "));
  EXPECT_TRUE(contains(result.err, "Generating: 4 steps"));
  EXPECT_TRUE(contains(result.err, "saved " + (program.folder() / "apple.png").string()));
  EXPECT_FALSE(contains(result.err, "\x1b"));
  EXPECT_FALSE(contains(result.err, "\r"));
  const Image image = read_image(program.folder() / "apple.png");
  EXPECT_EQ(image.width, 128);
  EXPECT_EQ(image.height, 128);
  EXPECT_EQ(program.files(), std::vector<std::string>{"apple.png"});
}

TEST(Generate, OneSeedGivesTheSameBytes) {
  const Program program;
  for (const char* name : {"a.png", "b.png"}) {
    ASSERT_EQ(program.generate({"-p", "a cat", "--seed", "7", "-o", name, "-q"}).status, 0);
  }
  EXPECT_EQ(program.read("a.png"), program.read("b.png"));
  ASSERT_EQ(program.generate({"-p", "a cat", "--seed", "8", "-o", "c.png", "-q"}).status, 0);
  EXPECT_NE(read_image(program.folder() / "a.png").rgb, read_image(program.folder() / "c.png").rgb);
}

TEST(Generate, SeveralPicturesEqualSingleRuns) {
  const Program program;
  const ProgramResult several =
      program.generate({"-p", "a cat", "--seed", "0", "--count", "3", "-o", "cat.png", "-q"});
  ASSERT_EQ(several.status, 0) << several.err;
  EXPECT_EQ(program.files(), (std::vector<std::string>{"cat-0.png", "cat-1.png", "cat-2.png"}));
  EXPECT_EQ(lines(several.out).size(), 3U);
  for (const char* seed : {"0", "2"}) {
    ASSERT_EQ(program.generate({"-p", "a cat", "--seed", seed, "-o", "one.png", "-q"}).status, 0);
    EXPECT_EQ(program.read("one.png"), program.read("cat-" + std::string(seed) + ".png"));
  }
}

TEST(Generate, JsonDocument) {
  const Program program;
  const ProgramResult result = program.generate(
      {"-p", "a cat", "--seed", "3", "-o", "out/cat", "--json", "--cfg", "5", "--steps", "2"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = parse_json(result.out, "stdout");
  EXPECT_EQ(document.at("status"), "completed");
  EXPECT_EQ(document.at("path"), (program.folder() / "out/cat.png").string());
  EXPECT_EQ(document.at("seed"), 3);
  EXPECT_EQ(document.at("outputs").size(), 1U);
  EXPECT_EQ(document.at("width"), 128);
  EXPECT_EQ(document.at("height"), 128);
  EXPECT_EQ(document.at("steps"), 2);
  EXPECT_EQ(document.at("max_sequence_length"), 64);
  EXPECT_EQ(document.at("model").at("id"), "image-emoji-nano");
  EXPECT_EQ(document.at("model").at("digest").get<std::string>().size(), 64U);
  EXPECT_GT(document.at("peak_memory_bytes"), 0);
  EXPECT_GT(document.at("total_seconds"), 0);
  for (const char* stage : {"load", "save", "digest"}) {
    EXPECT_TRUE(document.at("timings_seconds").contains(stage)) << stage;
  }
  ASSERT_EQ(document.at("warnings").size(), 1U);
  EXPECT_TRUE(contains(document.at("warnings")[0], "distilled model: --cfg 5 is not used"));
  EXPECT_TRUE(contains(result.err, "mere.run: warning: distilled model"));
}

// Memory for the rest but not for the decoder's last layers: the same picture, in tiles.
TEST(Generate, DecodesInTilesWhenMemoryIsShort) {
  const Program program;
  const std::string model = (fs::path(MERE_FIXTURES) / "klein" / "model").string();
  const auto draw = [&](const std::string& limit, const std::string& name) {
    return program.run({"image", "generate", "--model", model, "-p", "a hat", "--seed", "5",
                        "--steps", "1", "--width", "512", "--height", "512", "--memory-limit",
                        limit, "-o", name, "--json"});
  };
  const ProgramResult whole = draw("4GB", "whole.png");
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(parse_json(whole.out, "stdout").at("decode_mode"), "whole");
  EXPECT_FALSE(contains(whole.err, "in tiles"));

  const ProgramResult tiled = draw("100MB", "tiled.png");
  ASSERT_EQ(tiled.status, 0) << tiled.err;
  EXPECT_EQ(parse_json(tiled.out, "stdout").at("decode_mode"), "tiled");
  EXPECT_TRUE(contains(tiled.err, "decoding in tiles: the picture as a whole needs ")) << tiled.err;
  EXPECT_TRUE(contains(tiled.err, "the limit is 100 MB")) << tiled.err;
  const Image a = read_image(program.folder() / "whole.png");
  const Image b = read_image(program.folder() / "tiled.png");
  ASSERT_EQ(a.rgb.size(), b.rgb.size());
  for (size_t i = 0; i < a.rgb.size(); ++i) ASSERT_LE(std::abs(a.rgb[i] - b.rgb[i]), 1) << i;

  const ProgramResult refused = draw("10MB", "refused.png");
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err, "more than the 10.0 MB of --memory-limit")) << refused.err;
}

TEST(Generate, ProgressJson) {
  const Program program;
  const ProgramResult result = program.generate(
      {"-p", "a cat", "--seed", "3", "-o", "cat.png", "--progress-json", "--quiet"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, (program.folder() / "cat.png").string() + "\n");
  std::map<std::string, std::pair<int64_t, int64_t>> last;
  std::vector<int64_t> denoising;
  std::string previous;
  for (const std::string& line : lines(result.err)) {
    const Json event = parse_json(line, "stderr");
    const std::string stage = event.at("stage");
    EXPECT_EQ(line, R"({"event":"progress","stage":")" + stage + R"(","step":)" +
                        event.at("step").dump() + R"(,"total_steps":)" +
                        event.at("total_steps").dump() + "}");
    EXPECT_NE(line, previous);
    previous = line;
    last[stage] = {event.at("step"), event.at("total_steps")};
    if (stage == "denoising") denoising.push_back(event.at("step"));
  }
  EXPECT_EQ(denoising, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  for (const char* stage : {"encodingText", "denoising", "decoding", "saving"}) {
    EXPECT_EQ(last.count(stage), 1U) << stage;
  }
  for (const auto& [stage, position] : last) EXPECT_EQ(position.first, position.second) << stage;
}

TEST(Generate, QuietSaysOnlyThePath) {
  const Program program;
  const ProgramResult result = program.generate({"-p", "a cat", "-o", "cat.png", "-q"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out, (program.folder() / "cat.png").string() + "\n");
}

// A random seed must not be lost: it is in the picture, or else on stderr.
TEST(Generate, QuietWithoutMetadataStillTellsARandomSeed) {
  const Program program;
  const ProgramResult result =
      program.generate({"-p", "a cat", "-o", "cat.png", "-q", "--no-metadata"});
  ASSERT_EQ(result.status, 0);
  ASSERT_EQ(result.err.rfind("seed: ", 0), 0U) << result.err;
  const std::string seed = lines(result.err).at(0).substr(6);
  ASSERT_EQ(
      program.generate({"-p", "a cat", "-o", "b.png", "--no-metadata", "--seed", seed}).status, 0);
  EXPECT_EQ(program.read("cat.png"), program.read("b.png"));
}

TEST(Generate, InfoReadsTheParametersBack) {
  const Program program;
  ASSERT_EQ(program
                .generate({"-p", "a caf\xC3\xA9, \"hot\"", "--seed", "18446744073709551615", "-o",
                           "cup.png", "-q"})
                .status,
            0);
  const ProgramResult plain = program.run({"image", "info", "cup.png"});
  EXPECT_EQ(plain.status, 0);
  EXPECT_TRUE(contains(plain.out, "format: PNG\nsize: 128x128\n"));
  EXPECT_TRUE(contains(plain.out,
                       "Steps: 4, CFG scale: 1, Seed: 18446744073709551615, Size: "
                       "128x128, Model: image-emoji-nano, Model hash: "));
  const Json document =
      parse_json(program.run({"image", "info", "cup.png", "--json"}).out, "stdout");
  EXPECT_EQ(document.at("format"), "PNG");
  EXPECT_EQ(document.at("width"), 128);
  const Json& request = document.at("request");
  EXPECT_EQ(request.at("prompt"), "a caf\xC3\xA9, \"hot\"");
  EXPECT_EQ(request.at("seed"), 18446744073709551615ULL);
  EXPECT_EQ(request.at("steps"), 4);
  EXPECT_EQ(request.at("max_sequence_length"), 64);
  EXPECT_EQ(request.at("version"), version());
  EXPECT_TRUE(document.at("text").contains("parameters"));
}

TEST(Generate, NoMetadataMeansNone) {
  const Program program;
  ASSERT_EQ(
      program.generate({"-p", "a cat", "--seed", "1", "-o", "a.png", "--no-metadata", "-q"}).status,
      0);
  const std::string bytes = program.read("a.png");
  for (const char* chunk : {"tEXt", "iTXt", "zTXt", "eXIf", "tIME", "cat", "mere"}) {
    EXPECT_FALSE(contains(bytes, chunk)) << chunk;
  }
  const Json document = parse_json(program.run({"image", "info", "a.png", "--json"}).out, "stdout");
  EXPECT_TRUE(document.at("text").empty());
  EXPECT_TRUE(document.at("request").is_null());
  // And metadata changes no pixel.
  ASSERT_EQ(program.generate({"-p", "a cat", "--seed", "1", "-o", "b.png", "-q"}).status, 0);
  EXPECT_EQ(read_image(program.folder() / "a.png").rgb, read_image(program.folder() / "b.png").rgb);
}

TEST(Generate, FormatsByExtension) {
  const Program program;
  for (const auto& [name, format] : std::vector<std::pair<std::string, std::string>>{
           {"a.jpg", "JPEG"}, {"a.JPEG", "JPEG"}, {"a.webp", "WebP"}, {"a.png", "PNG"}}) {
    ASSERT_EQ(program.generate({"-p", "a cat", "--seed", "1", "-o", name, "-q"}).status, 0);
    const Json document = parse_json(program.run({"image", "info", name, "--json"}).out, "stdout");
    EXPECT_EQ(document.at("format"), format);
    EXPECT_EQ(document.at("request").at("seed"), 1) << name;
  }
}

TEST(Generate, TheDefaultNameIsInTheWorkingFolder) {
  const Program program;
  ASSERT_EQ(program.generate({"-p", "a cat", "-q"}).status, 0);
  ASSERT_EQ(program.files().size(), 1U);
  EXPECT_EQ(program.files()[0].rfind("mererun-image-", 0), 0U);
}

TEST(Generate, PromptsThatLookLikeOptions) {
  const Program program;
  const ProgramResult result =
      program.generate({"-p", "--steps", "--seed", "1", "-o", "a.png", "-q"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = parse_json(program.run({"image", "info", "a.png", "--json"}).out, "stdout");
  EXPECT_EQ(document.at("request").at("prompt"), "--steps");
}

class Interrupted : public ::testing::TestWithParam<int> {};

// The signal comes at the first denoising step of a run that would take minutes.
TEST_P(Interrupted, EndsWithinSecondsAndLeavesNoFile) {
  const Program program;
  std::chrono::steady_clock::time_point sent;
  bool was_sent = false;
  const ProgramResult result = program.generate(
      {"-p", "a cat", "--steps", "1000", "-o", "cat.png", "--progress-json", "--json"},
      [&](pid_t pid, const std::string& err) {
        if (was_sent || !contains(err, "\"denoising\",\"step\":1,")) return;
        ::kill(pid, GetParam());
        sent = std::chrono::steady_clock::now();
        was_sent = true;
      });
  ASSERT_TRUE(was_sent) << result.err;
  EXPECT_EQ(result.status, 130);
  EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(5));
  EXPECT_TRUE(program.files().empty());
  EXPECT_TRUE(contains(result.err, "mere.run: cancelled"));
  EXPECT_FALSE(contains(result.err, "\"saving\""));
  EXPECT_EQ(parse_json(result.out, "stdout").at("status"), "cancelled");
}

// A program that made pictures can find them, and what was wrong with them.
TEST(Generate, TheDocumentOfACancelledRunNamesFinishedPictures) {
  const Program program;
  bool was_sent = false;
  const ProgramResult result =
      program.generate({"-p", "a cat", "--steps", "40", "--count", "3", "--seed", "5", "-o",
                        "cat.png", "--cfg", "5", "--progress-json", "--json"},
                       [&](pid_t pid, const std::string& err) {
                         const size_t saved = err.find("\"saving\"");
                         if (was_sent || saved == std::string::npos) return;
                         if (err.find("\"denoising\",\"step\":2,", saved) == std::string::npos)
                           return;
                         ::kill(pid, SIGINT);
                         was_sent = true;
                       });
  ASSERT_TRUE(was_sent) << result.err;
  EXPECT_EQ(result.status, 130);
  const Json document = parse_json(result.out, "stdout");
  EXPECT_EQ(document.at("status"), "cancelled");
  EXPECT_EQ(
      document.at("outputs"),
      Json::parse(R"([{"path":")" + (program.folder() / "cat-5.png").string() + R"(","seed":5}])"));
  ASSERT_EQ(document.at("warnings").size(), 2U);
  EXPECT_TRUE(contains(document.at("warnings")[0], "--cfg 5 is not used"));
  EXPECT_TRUE(contains(document.at("warnings")[1], "1 of 3 pictures were finished and stay"));
  EXPECT_EQ(program.files(), std::vector<std::string>{"cat-5.png"});
}

TEST(Generate, AFileSizeLimitIsAnErrorAndLeavesNothing) {
  const Program program;
  const ProgramResult result =
      program.generate({"-p", "a cat", "-o", "cat.png", "-q"}, {}, {.file_size_limit = 1000});
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(contains(result.err, "cat.png: cannot write: File too large")) << result.err;
  EXPECT_TRUE(program.files().empty());
}

TEST(Generate, ReplacesTheTargetOfALinkAndKeepsItsMode) {
  const Program program;
  const fs::path target = program.write("real/" + std::string(240, 'n') + ".png", "old");
  fs::permissions(target, fs::perms(0640));
  fs::create_symlink(target, program.folder() / "cat.png");
  ASSERT_EQ(program.generate({"-p", "a cat", "-o", "cat.png", "-q"}).status, 0);
  EXPECT_TRUE(fs::is_symlink(program.folder() / "cat.png"));
  EXPECT_EQ(read_image(target).width, 128);
  EXPECT_EQ(fs::status(target).permissions(), fs::perms(0640));
}

// The widest line that is drawn, colour codes left out.
size_t widest(const std::string& err) {
  size_t most = 0;
  size_t columns = 0;
  for (size_t i = 0; i < err.size(); ++i) {
    if (err[i] == '\x1b') {
      i = err.find_first_of("Km", i);
    } else if (err[i] == '\r' || err[i] == '\n') {
      columns = 0;
    } else {
      most = std::max(most, ++columns);
    }
  }
  return most;
}

TEST(Generate, TheLiveLineFitsTheTerminal) {
  const Program program;
  const auto draw = [&](int columns, const std::vector<std::string>& variables) {
    // Only live lines: notes before and after may be longer and wrap.
    const ProgramResult result =
        program.generate({"-p", "a cat", "-o", "cat.png", "--no-metadata", "--seed", "1"}, {},
                         {.variables = variables, .terminal_columns = columns});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(contains(result.err, "\x1b[K"));
    const size_t end = result.err.rfind("saved ");
    const size_t start = result.err.find("seed: 1\n");
    EXPECT_NE(end, std::string::npos);
    return widest(result.err.substr(start, end - start));
  };
  const std::string term = "TERM=xterm";
  EXPECT_LE(draw(100, {term}), 99U);
  EXPECT_GE(draw(100, {term}), 40U);
  EXPECT_LE(draw(24, {term, "COLUMNS=100"}), 23U);
  EXPECT_LE(draw(5, {term}), 7U);  // "seed: 1" itself
  EXPECT_LE(draw(0, {term, "COLUMNS=18"}), 17U);
  EXPECT_LE(draw(0, {term, "COLUMNS=x"}), 79U);
}

TEST(Generate, TerminalsWithoutCodesGetPlainLines) {
  const Program program;
  for (const char* term : {"TERM=dumb", "TERM="}) {
    const ProgramResult result =
        program.generate({"-p", "a cat", "-o", "cat.png", "--cfg", "4"}, {},
                         {.variables = {term}, .terminal_columns = 80});
    EXPECT_EQ(result.status, 0);
    EXPECT_FALSE(contains(result.err, "\x1b")) << result.err;
    EXPECT_FALSE(contains(result.err, "\r")) << result.err;
    EXPECT_TRUE(contains(result.err, "Generating: 4 steps\n"));
    const ProgramResult refused =
        program.generate({"-p", "x", "-W", "1"}, {}, {.variables = {term}, .terminal_columns = 80});
    EXPECT_FALSE(contains(refused.err, "\x1b")) << refused.err;
  }
}

TEST(Generate, ShowSaysWhyNothingIsShown) {
  const Program program;
  const auto shown = [&](const std::vector<std::string>& variables, int columns = 80) {
    const ProgramResult result =
        program.generate({"-p", "a cat", "-o", "cat.png", "-q", "--show"}, {},
                         {.variables = variables, .terminal_columns = columns});
    return std::to_string(result.status) + " " + result.err;
  };
  EXPECT_TRUE(contains(shown({"MERERUN_SHOW_PROTOCOL=none"}), "MERERUN_SHOW_PROTOCOL is none\n"));
  EXPECT_TRUE(
      contains(shown({"TMUX=/tmp/tmux", "TERM=xterm-kitty"}), "--show: tmux does not pass"));
  EXPECT_TRUE(contains(shown({"STY=1.x"}), "--show: screen does not pass"));
  EXPECT_TRUE(contains(shown({"TERM=xterm"}), "is not known to show pictures"));
  EXPECT_TRUE(contains(shown({"TERM=xterm"}, -1), "standard error is not a terminal"));
  EXPECT_TRUE(contains(shown({"MERERUN_SHOW_PROTOCOL=sixel"}), "0 \x1bP"));
  // A wrong value is told before the picture is drawn.
  fs::remove(program.folder() / "cat.png");
  EXPECT_EQ(shown({"MERERUN_SHOW_PROTOCOL=x"}).rfind("64 mere.run: error: ", 0), 0U);
  EXPECT_TRUE(program.files().empty());
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupted, ::testing::Values(SIGINT, SIGTERM));

}  // namespace
}  // namespace mere
