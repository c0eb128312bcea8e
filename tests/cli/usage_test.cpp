// What the program says and returns before any picture is drawn.
#include <algorithm>
#include <gtest/gtest.h>

#include "program.h"

#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A usage error: status 64, nothing on stdout, one line on stderr besides notes, no file.
void expect_usage_error(const Program& program, const ProgramResult& result,
                        const std::string& part) {
  EXPECT_EQ(result.status, 64) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.err, "mere.run: error: ")) << result.err;
  EXPECT_TRUE(contains(result.err, part)) << result.err;
  const std::string last = result.err.substr(result.err.rfind("mere.run: error: "));
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 1) << last;
  for (const std::string& name : program.files()) EXPECT_FALSE(contains(name, ".png")) << name;
}

TEST(Usage, HelpIsCompleteAndSucceeds) {
  const Program program;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"-h"},
                                             {"image", "--help"},
                                             {"image", "generate", "--help"},
                                             {"image", "info", "--help"},
                                             {"image", "validate", "--help"}}) {
    const ProgramResult result = program.run(words);
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_TRUE(contains(result.out, "Usage: "));
    EXPECT_TRUE(contains(result.out, "--models-root"));
  }
  const std::string help = program.run({"image", "generate", "-h"}).out;
  for (const char* flag : {"-p,--prompt",
                           "-n,--negative-prompt",
                           "--cfg,--cfg-scale",
                           "--sigma-shift",
                           "--sigmas",
                           "-o,--output",
                           "-W,--width",
                           "-H,--height",
                           "-s,--steps",
                           "--seed",
                           "--count",
                           "-m,--model",
                           "-i,--input",
                           "--ref-image",
                           "--keep-original-aspect",
                           "--strength,--str",
                           "--max-sequence-length",
                           "-l,--lora",
                           "--lora-scale",
                           "--memory-limit",
                           "--no-metadata",
                           "--show",
                           "--json",
                           "--progress-json",
                           "-q,--quiet"}) {
    EXPECT_TRUE(contains(help, flag)) << flag;
  }
}

TEST(Usage, VersionGoesToStdout) {
  const ProgramResult result = Program().run({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "mere.run " + version() + "\n");
}

TEST(Usage, CommandsWithoutSubcommandPrintHelpAndFail) {
  const Program program;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{}, {"image"}}) {
    const ProgramResult result = program.run(words);
    EXPECT_EQ(result.status, 64);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(contains(result.err, "Subcommands:"));
  }
}

TEST(Usage, MistakesOfTheCommandLine) {
  const Program program;
  expect_usage_error(program, program.run({"imagine"}), "imagine");
  expect_usage_error(program, program.run({"image", "generate"}), "--prompt is required");
  expect_usage_error(program, program.generate({"-p", "x", "--bogus"}), "--bogus");
  expect_usage_error(program, program.generate({"-p", "x", "stray"}), "stray");
  expect_usage_error(program, program.generate({"-p"}), "image generate --help");
  expect_usage_error(program, program.generate({"-p", "x", "-p", "y"}), "--prompt");
  expect_usage_error(program, program.generate({"-p", "x", "--ref-image", "a.png", "b.png"}),
                     "b.png");
  expect_usage_error(program, program.run({"image", "generate", "-p", "x", "-m", ""}),
                     "--model is empty");
}

TEST(Usage, NegativeNumbersAreValuesNotFlags) {
  const Program program;
  expect_usage_error(program, program.generate({"-p", "x", "--seed", "-1"}), "\"-1\" is not");
  expect_usage_error(program, program.generate({"-p", "x", "--cfg", "-2.5"}), "not -2.5");
  expect_usage_error(program, program.generate({"-p", "x", "--strength", "-.5"}), "not -0.5");
  expect_usage_error(program, program.generate({"-p", "x", "-s", "-4"}), "not -4");
  expect_usage_error(program, program.generate({"-p", "x", "-W", "-64", "-H", "-64"}), "-64x-64");
  expect_usage_error(program, program.generate({"-p", "x", "--sigmas", "-1,-2"}), "--sigmas");
  expect_usage_error(program, program.generate({"-p", "x", "--lora-scale", "-1e"}), "-1e");
}

TEST(Usage, AnOptionSetToNothingDoesNotTakeTheNextWord) {
  const Program program;
  expect_usage_error(program, program.generate({"-p", "x", "--output=", "--steps", "4"}),
                     "--output is empty");
}

TEST(Usage, SizesAreRefusedWithTheNearestOne) {
  const Program program;
  for (const std::vector<std::string>& size :
       std::vector<std::vector<std::string>>{{"1000", "750"},
                                             {"1544", "1544"},
                                             {"640", "480"},
                                             {"1", "1"},
                                             {"0", "0"},
                                             {"-64", "-64"},
                                             {"99999", "99999"},
                                             {"9223372036854775807", "16"}}) {
    const ProgramResult result = program.generate({"-p", "x", "-W", size[0], "-H", size[1]});
    expect_usage_error(program, result, "draws 128x128 only (nearest: 128x128)");
  }
  expect_usage_error(program, program.generate({"-p", "x", "-W", "99999999999999999999"}),
                     "--width");
  expect_usage_error(program, program.generate({"-p", "x", "-W", "wide"}), "--width");
}

TEST(Usage, UnknownModels) {
  const Program program;
  for (const char* model : {"no-such-model", "../../etc", "org/repo"}) {
    expect_usage_error(program, program.run({"image", "generate", "-p", "x", "-m", model}),
                       "is not installed: looked in " + program.models().string());
  }
  expect_usage_error(
      program,
      program.run({"--models-root", "/nowhere", "image", "generate", "-p", "x", "-m", "y"}),
      "looked in /nowhere");
  expect_usage_error(
      program, program.run({"image", "generate", "--models-root=/nowhere", "-p", "x", "-m", "y"}),
      "looked in /nowhere");
  expect_usage_error(program, program.run({"image", "generate", "-p", "x", "-m", "/tmp"}),
                     "is not a model");
}

TEST(Usage, OutputsThatCannotBeWritten) {
  const Program program;
  program.write("file", "x");
  expect_usage_error(program, program.generate({"-p", "x", "-o", "a.gif"}), "a.gif");
  expect_usage_error(program, program.generate({"-p", "x", "-o", "."}), "folder");
  expect_usage_error(program, program.generate({"-p", "x", "-o", "file/a.png"}), "not a folder");
  expect_usage_error(program, program.generate({"-p", "x", "-o", "new/"}), "folder");
}

TEST(Usage, MemoryLimit) {
  const Program program;
  const ProgramResult result = program.generate({"-p", "x", "--memory-limit", "1MB"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.err, "more than the 1.0 MB of --memory-limit")) << result.err;
  EXPECT_TRUE(program.files().empty());
}

TEST(Usage, ErrorsAreADocumentWithJson) {
  const Program program;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"-p", "x", "--json", "-W", "130"}, {"-p", "x", "--width", "130", "--json"}}) {
    const ProgramResult result = program.generate(words);
    EXPECT_EQ(result.status, 64);
    const Json document = parse_json(result.out, "stdout");
    EXPECT_EQ(document.at("status"), "error");
    EXPECT_EQ(document.at("error").at("code"), "size_unsupported");
    EXPECT_EQ(document.at("error").at("field"), "--width");
    EXPECT_FALSE(document.at("error").at("message").get<std::string>().empty());
    EXPECT_TRUE(contains(document.at("error").at("hint"), "128x128"));
    EXPECT_TRUE(contains(result.err, "mere.run: error: "));
  }
  const Json usage = parse_json(program.generate({"--json", "--bogus"}).out, "stdout");
  EXPECT_EQ(usage.at("error").at("code"), "usage");
}

TEST(Usage, HostileNamesCannotWriteToTheTerminal) {
  const ProgramResult result = Program().run({"image", "generate", "-p", "x", "-m", "a\x1b[2J\nb"});
  EXPECT_EQ(result.status, 64);
  EXPECT_FALSE(contains(result.err, "\x1b"));
}

TEST(Usage, InfoOfWhatIsNoPicture) {
  const Program program;
  const ProgramResult missing = program.run({"image", "info", "none.png"});
  EXPECT_EQ(missing.status, 64);
  program.write("short.png", "\x89");
  const ProgramResult damaged = program.run({"image", "info", "short.png", "--json"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_EQ(parse_json(damaged.out, "stdout").at("status"), "error");
  EXPECT_TRUE(contains(damaged.err, "short.png"));
}

}  // namespace
}  // namespace mere
