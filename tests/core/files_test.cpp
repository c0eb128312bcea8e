#include "core/files.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/error.h"

namespace mere {
namespace {

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "files_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = fs::canonical(name);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static size_t entries(const fs::path& folder) {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
  }
  // The message of the IoError that `action` throws, which must name `path`.
  template <typename Action>
  static std::string io_error(const fs::path& path, const Action& action) {
    try {
      action();
    } catch (const IoError& e) {
      EXPECT_NE(std::string(e.what()).find(path.filename().string()), std::string::npos)
          << e.what();
      return e.what();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST_F(Files, ReadsWholeFilesUpToALimit) {
  const fs::path path = folder_ / "file";
  write(path, "12345");
  EXPECT_EQ(read_file(path, 5), "12345");
  EXPECT_NE(io_error(path, [&] { read_file(path, 4); }).find("limit of 4"), std::string::npos);
  write(path, "");
  EXPECT_EQ(read_file(path, 0), "");
}

TEST_F(Files, RefusesWhatIsNoRegularFile) {
  io_error(folder_ / "absent", [&] { read_file(folder_ / "absent", 10); });
  EXPECT_NE(io_error(folder_, [&] { read_file(folder_, 10); }), "no error");
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(io_error(pipe, [&] { read_file(pipe, 10); }).find("not a regular file"),
            std::string::npos);
  EXPECT_NE(io_error(pipe, [&] { MappedFile{pipe}; }).find("not a regular file"),
            std::string::npos);
}

TEST_F(Files, AtomicWriteCreatesFoldersAndReplaces) {
  const fs::path path = folder_ / "a" / "b" / "file";
  write_file_atomic(path, "one");
  EXPECT_EQ(read_file(path, 100), "one");
  write_file_atomic(path, std::string(100'000, 'x'));
  EXPECT_EQ(read_file(path, 100'000).size(), 100'000U);
  EXPECT_EQ(entries(path.parent_path()), 1U);
}

TEST_F(Files, AtomicWriteFollowsTheUmask) {
  const mode_t old = ::umask(022);
  write_file_atomic(folder_ / "file", "x");
  ::umask(old);
  EXPECT_EQ(fs::status(folder_ / "file").permissions(), static_cast<fs::perms>(0644));
}

TEST_F(Files, AtomicWriteKeepsTheModeOfAReplacedFile) {
  const fs::path path = folder_ / "file";
  for (const mode_t mode : {0600, 0664, 0755}) {
    write(path, "old");
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    write_file_atomic(path, "new");
    EXPECT_EQ(fs::status(path).permissions(), static_cast<fs::perms>(mode));
  }
}

TEST_F(Files, PrivateWritesAreForTheirOwnerAlone) {
  const fs::path path = folder_ / "file";
  const mode_t old = ::umask(0);
  write_private_file_atomic(path, "new");
  EXPECT_EQ(fs::status(path).permissions(), static_cast<fs::perms>(0600));
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  write_private_file_atomic(path, "again");
  ::umask(old);
  EXPECT_EQ(fs::status(path).permissions(), static_cast<fs::perms>(0600));
  EXPECT_EQ(read_file(path, 10), "again");
}

TEST_F(Files, AbandonedWritesOfOneFileAreRemoved) {
  for (const char* name : {"file", ".file.aB3dE5", ".file.aB3dE6", ".file.long-name",
                           ".file2.aB3dE5", "file.aB3dE5"}) {
    write(folder_ / name, "x");
  }
  remove_abandoned_writes(folder_ / "file");
  EXPECT_EQ(entries(folder_), 4U);
  EXPECT_TRUE(fs::exists(folder_ / "file"));
  EXPECT_FALSE(fs::exists(folder_ / ".file.aB3dE5"));
  remove_abandoned_writes(folder_ / "absent" / "file");
}

TEST_F(Files, AtomicWriteGoesThroughLinks) {
  fs::create_directory(folder_ / "sub");
  // The temporary name beside it must not be too long for the file system.
  const fs::path target = folder_ / "sub" / std::string(255, 'n');
  write(target, "old");
  fs::create_symlink(target, folder_ / "sub" / "first");
  fs::create_symlink("sub/first", folder_ / "link");
  write_file_atomic(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "sub" / "first"));
  EXPECT_EQ(read_file(target, 10), "new");
  EXPECT_EQ(entries(folder_ / "sub"), 2U);
}

TEST_F(Files, AtomicWriteRefusesLinksToNoFile) {
  fs::create_symlink("absent", folder_ / "dangling");
  fs::create_symlink("loop", folder_ / "loop");
  fs::create_symlink("/dev/null", folder_ / "device");
  fs::create_symlink(".", folder_ / "here");
  for (const char* name : {"dangling", "loop", "device", "here"}) {
    const fs::path path = folder_ / name;
    EXPECT_NE(io_error(path, [&] { write_file_atomic(path, "x"); }).find("symbolic link"),
              std::string::npos);
    EXPECT_TRUE(fs::is_symlink(path));
  }
  EXPECT_EQ(entries(folder_), 4U);
}

TEST_F(Files, FailedAtomicWriteLeavesNothingBehind) {
  // The rename cannot replace a folder.
  const fs::path path = folder_ / "taken";
  fs::create_directory(path);
  write(path / "inside", "x");
  EXPECT_NE(io_error(path, [&] { write_file_atomic(path, "x"); }), "no error");
  EXPECT_EQ(entries(folder_), 1U);
  EXPECT_EQ(entries(path), 1U);
  // The parent is a file.
  write(folder_ / "plain", "x");
  EXPECT_NE(io_error(folder_ / "plain", [&] { write_file_atomic(folder_ / "plain" / "f", "x"); }),
            "no error");
  EXPECT_EQ(entries(folder_), 2U);
  // The name is too long for the file system.
  const fs::path overlong = folder_ / std::string(300, 'n');
  EXPECT_THROW(write_file_atomic(overlong, "x"), IoError);
  EXPECT_EQ(entries(folder_), 2U);
}

TEST_F(Files, MapsBytesAndMoves) {
  const fs::path path = folder_ / "file";
  write(path, "mapped");
  MappedFile file(path);
  const auto text = [](const MappedFile& f) {
    return std::string(reinterpret_cast<const char*>(f.bytes().data()), f.bytes().size());
  };
  EXPECT_EQ(text(file), "mapped");
  MappedFile moved(std::move(file));
  EXPECT_EQ(text(moved), "mapped");
  write(folder_ / "other", "other");
  moved = MappedFile(folder_ / "other");
  EXPECT_EQ(text(moved), "other");
  EXPECT_EQ(moved.path(), folder_ / "other");
  write(path, "");
  EXPECT_TRUE(MappedFile(path).bytes().empty());
}

TEST_F(Files, ResolveInsideTakesNamesBelowTheRoot) {
  fs::create_directory(folder_ / "sub");
  write(folder_ / "sub" / "file", "x");
  EXPECT_EQ(resolve_inside(folder_, "sub/file"), folder_ / "sub" / "file");
  EXPECT_EQ(resolve_inside(folder_, "sub/../sub/./file"), folder_ / "sub" / "file");
  EXPECT_EQ(resolve_inside(folder_, "absent"), folder_ / "absent");
  EXPECT_EQ(resolve_inside(folder_, "..name"), folder_ / "..name");
  fs::create_symlink("sub/file", folder_ / "link");
  EXPECT_EQ(resolve_inside(folder_, "link"), folder_ / "sub" / "file");
}

TEST_F(Files, ResolveInsideRefusesTheRest) {
  const fs::path root = folder_ / "root";
  fs::create_directory(root);
  write(folder_ / "secret", "x");
  fs::create_symlink("../secret", root / "file_link");
  fs::create_symlink("..", root / "folder_link");
  fs::create_symlink("loop", root / "loop");
  using namespace std::string_literals;
  for (const std::string& name : {""s, ".."s, "../secret"s, "a/../../secret"s, "/etc/passwd"s,
                                  (root / "x").string(), "file_link"s, "folder_link/secret"s,
                                  "folder_link/new"s, "a\0b"s, std::string(300, 'n'), "loop"s}) {
    EXPECT_NE(io_error(root, [&] { resolve_inside(root, name); }), "no error") << name;
  }
  EXPECT_THROW(resolve_inside(folder_ / "absent", "file"), IoError);
}

TEST_F(Files, Sha256) {
  constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  EXPECT_EQ(sha256_hex("abc"), kAbc);
  EXPECT_EQ(sha256_hex(""), kEmpty);
  write(folder_ / "file", "abc");
  EXPECT_EQ(sha256_file(folder_ / "file"), kAbc);
  write(folder_ / "file", "");
  EXPECT_EQ(sha256_file(folder_ / "file"), kEmpty);
  std::string large((size_t{33} << 20) + 1, 'x');  // more than is read at once
  large.back() = 'y';
  write_file_atomic(folder_ / "file", large);
  EXPECT_EQ(sha256_file(folder_ / "file"), sha256_hex(large));
}

}  // namespace
}  // namespace mere
