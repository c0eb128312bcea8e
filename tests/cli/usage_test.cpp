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
  EXPECT_TRUE(contains(program.run({"image"}).err, "Usage: mere.run image "));
}

TEST(Usage, HelpShowsOneValueForOptionsThatRepeat) {
  const std::string help = Program().run({"image", "generate", "--help"}).out;
  EXPECT_TRUE(contains(help, "--ref-image FILE  "));
  EXPECT_TRUE(contains(help, "--lora FILE|ID[=SCALE]  "));
}

TEST(Usage, HelpThatCannotBeWrittenFails) {
  const Program program;
  for (const char* option : {"--help", "--version"}) {
    const ProgramResult result = program.run({option}, {}, {.stdout_path = "/dev/full"});
    EXPECT_EQ(result.status, 1) << option;
    EXPECT_TRUE(contains(result.err, "cannot write to standard output")) << result.err;
  }
}

TEST(Usage, MistakesOfTheCommandLine) {
  const Program program;
  expect_usage_error(program, program.run({"imagine"}), "unknown command; commands: image");
  expect_usage_error(program, program.run({"image", "draw"}), "commands: generate, info, validate");
  expect_usage_error(program, program.run({"image", "generate"}), "--prompt is required");
  expect_usage_error(program, program.generate({"-p", "x", "--bogus"}), "unknown option --bogus");
  expect_usage_error(program, program.generate({"-p", "x", "stray"}), "unexpected argument");
  expect_usage_error(program, program.generate({"-p"}), "image generate --help");
  expect_usage_error(program, program.generate({"-p", "x", "-p", "y"}), "--prompt was given twice");
  expect_usage_error(program, program.generate({"-p", "x", "-s", "1", "--steps", "2", "--steps=3"}),
                     "--steps was given 3 times");
  expect_usage_error(program, program.generate({"-p", "x", "--steps"}), "--steps needs a value");
  expect_usage_error(program, program.generate({"-p", "x", "--json=yes"}), "--json takes no value");
  expect_usage_error(program, program.generate({"-p", "x", "--ref-image", "a.png", "b.png"}),
                     "unexpected argument");
  expect_usage_error(program, program.run({"image", "info", "a", "b.png"}), "quote a name");
  expect_usage_error(program, program.run({"image", "generate", "-p", "x", "-m", ""}),
                     "--model is empty");
}

// Errors are logged: no word of a prompt may be in one, however the command line went wrong.
TEST(Usage, ErrorsDoNotRepeatPrompts) {
  const Program program;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-p", "a", "secret", "cat"},
                                             {"--promt", "a secret cat"},
                                             {"--promt=secret"},
                                             {"--promt:secret"},
                                             {"-zsecret", "-p", "x"},
                                             {"-p", "x", "--a secret cat"},
                                             {"-p", "x", "--\xC3\xA9secret"},
                                             {"-p", "x", "--", "secret"},
                                             {"-p", "x", "-p", "secret"},
                                             {"-p", "x", "--quiet=secret"},
                                             {"-p", "draw", "an", "image", "info", "secret"},
                                             {"-p", "x", "info", "secret"}}) {
    std::vector<std::string> all = words;
    all.emplace_back("--json");
    for (const std::vector<std::string>& given : {words, all}) {
      const ProgramResult result = program.generate(given);
      EXPECT_EQ(result.status, 64) << result.err;
      EXPECT_FALSE(contains(result.err + result.out, "secret")) << result.err;
      EXPECT_TRUE(contains(result.err, "(see mere.run image generate --help)")) << result.err;
    }
  }
  expect_usage_error(program, program.generate({"--promt", "a secret cat"}),
                     "unknown option --promt (");
  expect_usage_error(program, program.generate({"-zsecret"}), "unknown option -z (");
  for (const char* word : {"secret", "a secret cat"}) {
    EXPECT_FALSE(contains(program.run({word}).err, "secret"));
    EXPECT_FALSE(contains(program.run({"image", word}).err, "secret"));
  }
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
  expect_usage_error(program, program.run({"image", "generate", "-p", "x", "-m", "no-such-model"}),
                     "is not installed: looked in " + program.models().string());
  for (const char* model : {"/nowhere", "../../none", "org/repo"}) {
    const ProgramResult result =
        program.run({"image", "generate", "-p", "x", "-m", model, "--json"});
    EXPECT_EQ(result.status, 64);
    EXPECT_TRUE(contains(result.err, std::string("no such folder: ") + model)) << result.err;
    EXPECT_EQ(parse_json(result.out, "stdout").at("error").at("code"), "model_not_found");
  }
  expect_usage_error(program, program.run({"image", "generate", "-p", "x", "-m", "/tmp"}),
                     "is not a model");
}

TEST(Usage, TheModelsRootMustBeAFolder) {
  const Program program;
  fs::create_directory(program.folder() / "models");
  const std::string file = program.write("file", "x").string();
  expect_usage_error(
      program, program.run({"--models-root", "models", "image", "generate", "-p", "x", "-m", "y"}),
      "looked in models");
  for (const std::string& root : {file, std::string("/nowhere")}) {
    const std::string text = "no folder at " + root;
    expect_usage_error(program, program.generate({"--models-root=" + root, "-p", "x"}), text);
    expect_usage_error(program, program.run({"--models-root", root, "image", "validate"}), text);
    // The variable may be meant for a later day.
    const ProgramResult warned = program.generate({"-p", "x", "-q", "-o", "a.png"}, {},
                                                  {.variables = {"MERERUN_MODELS_DIR=" + root}});
    EXPECT_EQ(warned.status, 0) << warned.err;
    EXPECT_EQ(warned.err, "mere.run: warning: MERERUN_MODELS_DIR: " + text + "\n");
    fs::remove(program.folder() / "a.png");
  }
}

TEST(Usage, NumbersOutOfRangeAreRepeatedAsGiven) {
  const Program program;
  program.write("a", "x");
  expect_usage_error(program, program.generate({"-p", "x", "-l", "a", "--lora-scale", "100.3"}),
                     "error: --lora-scale must be from -100 to 100, not 100.3\n");
  expect_usage_error(program, program.generate({"-p", "x", "-l", "a=-1e30"}),
                     "error: --lora must be from -100 to 100, not -1e30\n");
  expect_usage_error(program, program.generate({"-p", "x", "-l", "a=33.4", "--lora-scale", "3"}),
                     "error: --lora-scale 3 times the scale 33.4 of a is not from -100 to 100\n");
  expect_usage_error(program, program.generate({"-p", "x", "--sigma-shift", "0.0099"}),
                     "--sigma-shift must be from 0.01 to 100, not 0.0099");
}

TEST(Usage, OutputNamesThatNoDocumentCanCarry) {
  const Program program;
  for (const auto& [name, code] :
       std::vector<std::pair<std::string, std::string>>{{"a\xff.png", "output_name_not_utf8"},
                                                        {"\xc3/a.png", "output_name_not_utf8"},
                                                        {"a\nb.png", "output_name_invalid"},
                                                        {"a\x1b[2J.png", "output_name_invalid"},
                                                        {"a\x7f", "output_name_invalid"},
                                                        {"a\xc2\x9b.png", "output_name_invalid"}}) {
    const ProgramResult result = program.generate({"-p", "x", "-o", name, "--json"});
    EXPECT_EQ(result.status, 64) << result.err;
    EXPECT_EQ(parse_json(result.out, "stdout").at("error").at("code"), code);
    EXPECT_TRUE(program.files().empty());
  }
  EXPECT_EQ(program.generate({"-p", "x", "-q", "-o", "\xc2\xa0\xc3\xa9.png"}).status, 0);
}

TEST(Usage, DevicesAreNotFilesBesideThem) {
  const Program program;
  for (const char* device : {"/dev/null", "/dev/full", "/dev/stdout", "/dev/fd/1"}) {
    const ProgramResult result = program.generate({"-p", "x", "-o", device, "--json"});
    EXPECT_EQ(result.status, 64) << device;
    EXPECT_EQ(parse_json(result.out, "stdout").at("error").at("code"), "output_not_a_file");
    EXPECT_FALSE(fs::exists(std::string(device) + ".png")) << device;
  }
  // Where standard output is a file.
  program.write("out", "");
  const ProgramResult result = program.generate({"-p", "x", "-o", "/dev/stdout"}, {},
                                                {.stdout_path = (program.folder() / "out")});
  EXPECT_EQ(result.status, 64) << result.err;
  EXPECT_TRUE(contains(result.err, "/dev/stdout is not a place for pictures")) << result.err;
}

TEST(Usage, OutputsThatCannotBeWritten) {
  const Program program;
  program.write("file", "x");
  fs::create_symlink("nowhere.png", program.folder() / "link");
  expect_usage_error(program, program.generate({"-p", "x", "-o", "link"}), "symbolic link");
  fs::create_symlink("nowhere", program.folder() / "folder");
  expect_usage_error(program, program.generate({"-p", "x", "-o", "folder/a"}), "not a folder");
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
    EXPECT_EQ(document.at("outputs"), Json::array());
    EXPECT_EQ(document.at("warnings"), Json::array());
    EXPECT_TRUE(contains(result.err, "mere.run: error: "));
  }
  const Json usage = parse_json(program.generate({"--json", "--bogus"}).out, "stdout");
  EXPECT_EQ(usage.at("error").at("code"), "usage");
  EXPECT_EQ(usage.at("error").at("field"), "--bogus");
}

TEST(Usage, HostileNamesCannotWriteToTheTerminal) {
  const ProgramResult result = Program().run({"image", "generate", "-p", "x", "-m", "a\x1b[2J\nb"});
  EXPECT_EQ(result.status, 64);
  EXPECT_FALSE(contains(result.err, "\x1b"));
}

TEST(Usage, InfoOfWhatIsNoPicture) {
  const Program program;
  const ProgramResult missing = program.run({"image", "info", "none.png", "--json"});
  EXPECT_EQ(missing.status, 64);
  EXPECT_EQ(parse_json(missing.out, "stdout").at("error").at("code"), "file_not_found");
  program.write("short.png", "\x89");
  const ProgramResult damaged = program.run({"image", "info", "short.png", "--json"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_EQ(parse_json(damaged.out, "stdout").at("status"), "error");
  EXPECT_TRUE(contains(damaged.err, "short.png"));
}

}  // namespace
}  // namespace mere
