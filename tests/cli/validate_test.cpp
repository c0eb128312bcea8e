#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "program.h"

#include "core/json.h"

namespace mere {
namespace {

TEST(Validate, ReportsTheShippedModelsCases) {
  const Program program;
  const ProgramResult result =
      program.run({"image", "validate", "--family", "klein", "--cases",
                   std::string(MERE_MODELS) + "/image-emoji-nano/cases", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  const Json document = parse_json(result.out, "stdout");
  EXPECT_EQ(document.at("status"), "passed");
  EXPECT_EQ(document.at("cases").size(), 3U);
  for (const Json& check : document.at("cases")) {
    EXPECT_TRUE(check.at("passed")) << check.dump();
    EXPECT_FALSE(check.at("tensors").empty());
    EXPECT_TRUE(check.at("tensors")[0].at("max_abs").is_number());
    EXPECT_TRUE(check.at("tensors")[0].at("rel_l2").is_number());
  }
  EXPECT_NE(result.err.find("3 of 3 passed"), std::string::npos);
}

TEST(Validate, FailsWhenNoCaseIsFound) {
  const Program program;
  const ProgramResult result = program.run({"image", "validate", "--cases", ".", "--json"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(parse_json(result.out, "stdout").at("status"), "failed");
  EXPECT_NE(result.err.find("no case was found"), std::string::npos);
}

TEST(Validate, FailsOnADamagedCase) {
  const Program program;
  program.write("cases/bad.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x0f{}", 10));
  const ProgramResult result = program.run({"image", "validate", "--cases", "cases"});
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("bad.safetensors"), std::string::npos);
}

// With --quiet there is no report: the error line must say it.
TEST(Validate, RefusesCasesThatAreNeitherFileNorFolder) {
  const Program program;
  ASSERT_EQ(::mkfifo((program.folder() / "pipe").c_str(), 0600), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (program.folder() / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  fs::create_symlink("loop", program.folder() / "loop");
  for (const std::string& cases :
       {std::string("/dev/zero"), std::string("pipe"), std::string("socket"), std::string("loop"),
        std::string("none"), std::string(300, 'n')}) {
    const ProgramResult result = program.run({"image", "validate", "--cases", cases, "-q"});
    EXPECT_EQ(result.status, 64) << cases;
    EXPECT_EQ(result.err.rfind("mere.run: error: " + cases + ": ", 0), 0U) << result.err;
  }
}

TEST(Validate, UsageErrors) {
  const Program program;
  EXPECT_EQ(program.run({"image", "validate", "--family", "none"}).status, 64);
  EXPECT_EQ(program.run({"image", "validate", "--test", "none"}).status, 64);
  EXPECT_EQ(program.run({"image", "validate", "--model", "none"}).status, 64);
  EXPECT_EQ(program.run({"image", "validate", "--cases", "none"}).status, 64);
}

}  // namespace
}  // namespace mere
