#include "core/files.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/error.h"

namespace mere {
namespace {

constexpr size_t kTemporaryNameBytes = 240;
constexpr std::string_view kTemporaryMark = "XXXXXX";

[[noreturn]] void fail(const char* code, const fs::path& path, const std::string& what) {
  throw IoError{{code, path.string(), path.string() + ": " + what, ""}};
}

[[noreturn]] void fail_errno(const char* code, const fs::path& path, const char* verb) {
  fail(code, path, std::string(verb) + ": " + std::strerror(errno));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

// Opens a regular file; pipes and devices would block or never end. Returns its size.
size_t open_regular(const fs::path& path, const FileDescriptor& fd) {
  if (fd.get() < 0) fail_errno("file_unreadable", path, "cannot open");
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) fail_errno("file_unreadable", path, "cannot stat");
  if (!S_ISREG(st.st_mode)) fail("file_unreadable", path, "not a regular file");
  return static_cast<size_t>(st.st_size);
}

void write_all(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("file_unwritable", path, "cannot write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

// The file that writing to `path` replaces: itself, or what its symbolic links lead to.
fs::path replaced_file(const fs::path& path) {
  std::error_code ec;
  if (!fs::is_symlink(path, ec)) return path;
  const fs::path target = fs::canonical(path, ec);
  if (ec) fail("file_unwritable", path, "a symbolic link that leads nowhere: " + ec.message());
  if (!fs::is_regular_file(target, ec)) {
    fail("file_unwritable", path, "a symbolic link to what is no regular file");
  }
  return target;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// What the names of temporary files beside `path` begin with. File systems take names of 255 bytes.
std::string temporary_prefix(const fs::path& path) {
  return "." + path.filename().string().substr(0, kTemporaryNameBytes) + ".";
}

// Permissions of the file at `path`, else those a new file gets.
mode_t mode_of(const fs::path& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode)) return st.st_mode & 0777;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

void replace_file(const fs::path& given, std::string_view bytes, bool is_private) {
  const fs::path path = replaced_file(given);
  const fs::path folder = folder_of(path);
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) fail("file_unwritable", folder, "cannot create folder: " + ec.message());
  std::string temporary =
      (folder / (temporary_prefix(path) + std::string(kTemporaryMark))).string();
  FileDescriptor fd(::mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (fd.get() < 0) fail_errno("file_unwritable", path, "cannot create a file beside it");
  try {
    if (!is_private) ::fchmod(fd.get(), mode_of(path));
    write_all(fd.get(), bytes, path);
    if (::fsync(fd.get()) != 0) fail_errno("file_unwritable", path, "cannot sync");
    if (fd.close() != 0) fail_errno("file_unwritable", path, "cannot close");
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      fail_errno("file_unwritable", path, "cannot rename");
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

struct DigestDeleter {
  void operator()(EVP_MD_CTX* ctx) const { EVP_MD_CTX_free(ctx); }
};
using DigestContext = std::unique_ptr<EVP_MD_CTX, DigestDeleter>;

std::string finish_hex(EVP_MD_CTX* ctx) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (EVP_DigestFinal_ex(ctx, digest.data(), &length) != 1) {
    throw InternalError{{"hash_failed", "", "SHA-256 failed", ""}};
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned int i = 0; i < length; ++i) {
    out += kHex[digest[i] >> 4];
    out += kHex[digest[i] & 15];
  }
  return out;
}

[[noreturn]] void refuse_name(const fs::path& root, std::string_view name, const char* why) {
  throw IoError{{"path_refused", root.string(),
                 root.string() + ": refers to \"" + printable(name) + "\", which " + why, ""}};
}

// `root` without links, once `name` is one that may be joined to it.
fs::path checked_root(const fs::path& root, std::string_view name) {
  if (name.empty()) refuse_name(root, name, "is empty");
  if (name.find('\0') != std::string_view::npos) refuse_name(root, name, "holds a NUL");
  if (name.size() > 255) refuse_name(root, name, "is too long");
  if (fs::path(name).is_absolute()) refuse_name(root, name, "is absolute");
  std::error_code ec;
  fs::path base = fs::canonical(root, ec);
  if (ec) fail("file_unreadable", root, ec.message());
  return base;
}

fs::path resolved(const fs::path& path) {
  std::error_code ec;
  fs::path full = fs::weakly_canonical(path, ec);
  if (ec) fail("file_unreadable", path, ec.message());
  return full;
}

bool is_below(const fs::path& base, const fs::path& full) {
  const fs::path inside = full.lexically_relative(base);
  return !inside.empty() && *inside.begin() != "..";
}

bool is_hub_blob(const fs::path& file) {
  const std::string name = file.filename().string();
  const fs::path blobs = file.parent_path();
  std::error_code ec;
  return (name.size() == 40 || name.size() == 64) &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos &&
         blobs.filename() == "blobs" &&
         blobs.parent_path().filename().string().starts_with("models--") &&
         fs::is_regular_file(file, ec);
}

DigestContext start_sha256() {
  DigestContext ctx(EVP_MD_CTX_new());
  if (!ctx || EVP_DigestInit_ex(ctx.get(), EVP_sha256(), nullptr) != 1) {
    throw InternalError{{"hash_failed", "", "SHA-256 is not available", ""}};
  }
  return ctx;
}

}  // namespace

std::string read_file(const fs::path& path, size_t max_bytes) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const size_t size = open_regular(path, fd);
  if (size > max_bytes) {
    fail("file_too_large", path,
         std::to_string(size) + " bytes, more than the limit of " + std::to_string(max_bytes));
  }
  std::string out(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd.get(), out.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("file_unreadable", path, "cannot read");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  out.resize(done);
  return out;
}

void write_file_atomic(const fs::path& path, std::string_view bytes) {
  replace_file(path, bytes, false);
}

void write_private_file_atomic(const fs::path& path, std::string_view bytes) {
  replace_file(path, bytes, true);
}

void remove_abandoned_writes(const fs::path& path) {
  std::error_code ec;
  const fs::path target = fs::weakly_canonical(path, ec);
  const std::string prefix = temporary_prefix(target);
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator it(folder_of(target), ec); !ec && it != fs::directory_iterator();
       it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix) && name.size() == prefix.size() + kTemporaryMark.size()) {
      abandoned.push_back(it->path());
    }
  }
  for (const fs::path& file : abandoned) ::unlink(file.c_str());
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  size_ = open_regular(path, fd);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) fail_errno("file_unreadable", path, "cannot map");
  data_ = static_cast<const std::byte*>(data);
}

void MappedFile::release_pages() const {
  if (size_ > 0) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

fs::path resolve_inside(const fs::path& root, std::string_view name) {
  const fs::path base = checked_root(root, name);
  const fs::path full = resolved(base / fs::path(name));
  if (!is_below(base, full)) refuse_name(root, name, "leaves the folder");
  return full;
}

fs::path resolve_model_file(const fs::path& root, std::string_view name) {
  const fs::path base = checked_root(root, name);
  const fs::path full = resolved(base / fs::path(name));
  if (is_below(base, full)) return full;
  // Only a link from inside: the name itself must not leave.
  const fs::path place = (base / fs::path(name)).lexically_normal();
  const fs::path folder = resolved(place.parent_path());
  if (!is_hub_blob(full) || !is_below(base, place) || (folder != base && !is_below(base, folder))) {
    refuse_name(root, name, "leaves the folder");
  }
  return folder / place.filename();
}

std::string sha256_hex(std::string_view bytes) {
  const DigestContext ctx = start_sha256();
  EVP_DigestUpdate(ctx.get(), bytes.data(), bytes.size());
  return finish_hex(ctx.get());
}

std::string sha256_file(const fs::path& path) {
  const MappedFile file(path);
  const DigestContext ctx = start_sha256();
  constexpr size_t kPiece = size_t{16} << 20;
  const auto bytes = file.bytes();
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    EVP_DigestUpdate(ctx.get(), piece.data(), piece.size());
    file.release_pages();  // a model is larger than what this may take
  }
  return finish_hex(ctx.get());
}

}  // namespace mere
