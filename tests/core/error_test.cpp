#include "core/error.h"

#include <gtest/gtest.h>

#include "core/progress.h"

namespace mere {
namespace {

TEST(Error, TextIsMessageAndHint) {
  const UsageError error({"size_unsupported", "--width", "width 130 is odd", "use 128"});
  EXPECT_STREQ(error.what(), "width 130 is odd (use 128)");
  EXPECT_EQ(error.kind(), ErrorKind::kUsage);
  EXPECT_EQ(error.info().code, "size_unsupported");
  EXPECT_EQ(error.info().field, "--width");
  EXPECT_STREQ(IoError({"c", "", "disk full", ""}).what(), "disk full");
}

TEST(Error, IsOneLineWhateverTheNamesInIt) {
  const IoError error({"c", "", "bad\nname \x1b[31m\x7f", "try\tagain"});
  EXPECT_STREQ(error.what(), "bad?name ?[31m? (try?again)");
}

TEST(Error, LongMessagesAreCut) {
  const IoError error({"c", "", std::string(5000, 'x'), ""});
  EXPECT_LT(std::string(error.what()).size(), 1100U);
}

TEST(Error, EveryKindIsCaughtAsError) {
  const auto kind_of = [](auto&& error) {
    try {
      throw error;
    } catch (const Error& e) {
      return e.kind();
    }
  };
  EXPECT_EQ(kind_of(UsageError({})), ErrorKind::kUsage);
  EXPECT_EQ(kind_of(IoError({})), ErrorKind::kIo);
  EXPECT_EQ(kind_of(ResourceError({})), ErrorKind::kResource);
  EXPECT_EQ(kind_of(InternalError({})), ErrorKind::kInternal);
  EXPECT_EQ(kind_of(Cancelled()), ErrorKind::kCancelled);
}

TEST(Error, ExitStatus) {
  EXPECT_EQ(exit_status(ErrorKind::kUsage), 64);
  EXPECT_EQ(exit_status(ErrorKind::kCancelled), 130);
  EXPECT_EQ(exit_status(ErrorKind::kIo), 1);
  EXPECT_EQ(exit_status(ErrorKind::kResource), 1);
  EXPECT_EQ(exit_status(ErrorKind::kInternal), 1);
}

TEST(Error, PrintableCutsBetweenCharacters) {
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("abcd", 3), "abc...");
  EXPECT_EQ(printable("\u00e9\u00e9", 4), "\u00e9\u00e9");
  EXPECT_EQ(printable("ab\u4e2dz", 4), "ab...");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(printable(""), "");
}

TEST(Progress, ReportThrowsOnceCancelled) {
  SilentProgress progress;
  progress.report(Stage::kDenoising, 0, 4);
  EXPECT_FALSE(progress.cancelled());
  progress.cancel();
  EXPECT_TRUE(progress.cancelled());
  EXPECT_THROW(progress.report(Stage::kDenoising, 1, 4), Cancelled);
  EXPECT_THROW(progress.check_cancelled(), Cancelled);
  EXPECT_EQ(stage_name(Stage::kEncodingText), "encodingText");
}

}  // namespace
}  // namespace mere
