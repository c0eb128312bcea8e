#include "catalog/blob_transfer.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "catalog/names.h"
#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr int kTriesOfContent = 2;
constexpr int64_t kProgressBytes = int64_t{64} << 10;  // less does not renew the tries
constexpr size_t kMaxNoteBytes = 4096;
constexpr size_t kMaxPointerBytes = 1024;
constexpr std::string_view kPointerStart = "version https://git-lfs.github.com/spec/";

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// "bytes 5-99/100" -> {5, 100}; the second is empty for '*'.
struct ContentRange {
  int64_t start = 0;
  std::optional<int64_t> total;
};
std::optional<ContentRange> content_range(const HttpResponse& head) {
  const std::string* text = head.last_header("content-range");
  if (text == nullptr || !text->starts_with("bytes ")) return std::nullopt;
  const std::string_view range = std::string_view(*text).substr(6);
  const size_t dash = range.find('-');
  const size_t slash = range.find('/');
  if (dash == range.npos || slash == range.npos) return std::nullopt;
  const auto start = number(range.substr(0, dash));
  if (!start) return std::nullopt;
  return ContentRange{*start, number(range.substr(slash + 1))};
}

// An ETag that stands for the very bytes, quotes included; empty when there is none.
std::string strong_etag(const HttpResponse& head) {
  const std::string* etag = head.last_header("etag");
  const bool strong = etag != nullptr && etag->size() > 2 && etag->size() < 300 &&
                      etag->front() == '"' && etag->back() == '"' && printable(*etag, 300) == *etag;
  return strong ? *etag : "";
}

[[noreturn]] void fail_write(const fs::path& file, int reason) {
  if (reason == ENOSPC || reason == EDQUOT) {
    throw ResourceError{{"disk_full", file.parent_path().string(),
                         "the disk is full: " + file.parent_path().string() + " cannot take more",
                         "make room and run the same command again: it goes on where it stopped"}};
  }
  throw IoError{{"file_unwritable", file.string(),
                 file.string() + ": cannot write: " + std::strerror(reason), ""}};
}

}  // namespace

BlobTransfer::BlobTransfer(const BlobJob& job, Hub& hub, TransferShared& shared)
    : job_(job), hub_(hub), shared_(shared) {}

BlobTransfer::~BlobTransfer() {
  hash_.reset();
  if (fd_ >= 0) ::close(fd_);
}

std::string BlobTransfer::name() const {
  return job_.repository_id + "/" + printable(job_.file.path);
}

void BlobTransfer::set_offset(int64_t offset) {
  shared_.bytes_done += offset - offset_;
  offset_ = offset;
}

std::string BlobTransfer::run() {
  std::string sha256;
  if (check_present(sha256)) return sha256;
  open_part();
  for (int tries = 1;; ++tries) {
    try {
      download();
      sha256 = check_hash();
      put_in_place();
      return sha256;
    } catch (const Mismatch& wrong) {
      restart();
      if (tries == kTriesOfContent) {
        ::unlink(job_.repository->part(job_.file.etag).c_str());
        ::unlink(job_.repository->part_note(job_.file.etag).c_str());
        throw IoError{{"content_mismatch", job_.file.path,
                       name() + ": " + wrong.what + " is not the expected one: expected " +
                           wrong.expected + ", got " + wrong.got,
                       "try again later; if it stays, what the hub or a proxy sends is damaged"}};
      }
      shared_.note(name() + ": " + wrong.what + " is wrong, fetching it again");
    }
  }
}

// True when the blob is there and has the right hash, by the record or by hashing it now.
bool BlobTransfer::check_present(std::string& sha256) {
  HubRepository& repository = *job_.repository;
  const HubFile& file = job_.file;
  if (!repository.has_blob(file.etag, file.size)) return false;
  if (!shared_.verify_again) {
    const std::lock_guard lock(shared_.records);
    if (const auto known = repository.verified_sha256(file.etag)) {
      sha256 = *known;
      set_offset(file.size);
      return true;
    }
  }
  const int fd = ::open(repository.blob(file.etag).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  ContentHash::Digests digests;
  try {
    ContentHash hash(fd, file.size, !file.is_sha256());
    hash.advance(file.size);
    digests = hash.finish(shared_.stop);
  } catch (const IoError&) {
    digests = {};  // a blob that cannot be read is fetched again
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  const std::lock_guard lock(shared_.records);
  if ((file.is_sha256() ? digests.sha256 : digests.git_blob) == file.etag) {
    sha256 = digests.sha256;
    repository.set_verified(file.etag, sha256);
    set_offset(file.size);
    return true;
  }
  repository.forget_verified(file.etag);
  shared_.note(name() + ": the file on disk is damaged, fetching it again");
  return false;
}

void BlobTransfer::open_part() {
  const fs::path part = job_.repository->part(job_.file.etag);
  make_folders(part.parent_path());
  struct stat st {};
  if (::lstat(part.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) ::unlink(part.c_str());
  fd_ = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0 || ::fstat(fd_, &st) != 0) fail_write(part, errno);
  int64_t there = st.st_size;
  try {
    const std::string source = job_.repository->part_note(job_.file.etag).string();
    const Json note = parse_json_file(source, kMaxNoteBytes);
    const bool same = json_string_or(note, "etag", "", source) == job_.file.etag &&
                      json_int(note, "size", 0, INT64_MAX, source) == job_.file.size;
    validator_ = json_string_or(note, "validator", "", source);
    if (!same) there = 0;
  } catch (const Error&) {
    there = 0;  // nobody knows what it is a part of
  }
  if (there > job_.file.size) there = 0;
  if (there == 0) {
    restart();
    return;
  }
  hash_ = std::make_unique<ContentHash>(fd_, job_.file.size, !job_.file.is_sha256());
  hash_->advance(there);
  set_offset(there);
}

void BlobTransfer::restart() {
  hash_.reset();
  if (::ftruncate(fd_, 0) != 0) fail_write(job_.repository->part(job_.file.etag), errno);
  hash_ = std::make_unique<ContentHash>(fd_, job_.file.size, !job_.file.is_sha256());
  set_offset(0);
  validator_.clear();
}

void BlobTransfer::download() {
  Retry retry(shared_.retry, shared_.stop);
  int64_t renewed_at = offset_;
  while (offset_ < job_.file.size) {
    std::optional<double> asked_s;
    const auto again = [&](const Error& e) {
      if (std::abs(offset_ - renewed_at) >= kProgressBytes) retry.made_progress();
      renewed_at = offset_;
      if (!retry.again(asked_s)) return false;
      shared_.note(name() + ": " + e.info().code + ", trying again");
      return true;
    };
    try {
      download_once();
    } catch (const HttpError& e) {
      if (!e.transient || !again(e)) throw;
    } catch (const HubBusy& e) {
      asked_s = e.asked_s;
      if (!again(e)) throw;
    }
  }
}

void BlobTransfer::download_once() {
  std::vector<std::string> headers;
  if (offset_ > 0) {
    headers.push_back("Range: bytes=" + std::to_string(offset_) + "-");
    if (!validator_.empty()) headers.push_back("If-Range: " + validator_);
  }
  wrong_size_.reset();
  wrong_start_.clear();
  const HttpResponse response =
      hub_.get_file(job_.repository_id, job_.commit, job_.file, std::move(headers), *this);
  if (response.status == 416) {
    // What is there goes beyond what the server has.
    throw Mismatch{"its size", std::to_string(job_.file.size) + " bytes", "a shorter file"};
  }
  hub_.check_status(response, job_.repository_id, printable(job_.file.path));
  if (wrong_size_) {
    if (wrong_start_.starts_with(kPointerStart)) check_pointer();
    throw Mismatch{"its size", std::to_string(job_.file.size) + " bytes",
                   std::to_string(*wrong_size_) + " bytes"};
  }
  if (offset_ < job_.file.size) {
    throw HttpError({"connection_cut", job_.file.path, name() + ": the answer ended early", ""},
                    true);
  }
}

void BlobTransfer::on_head(const HttpResponse& head) {
  const HubFile& file = job_.file;
  const auto bytes_text = [](int64_t bytes) { return std::to_string(bytes) + " bytes"; };
  if (const std::string* etag = head.header("x-linked-etag"); etag != nullptr) {
    std::string plain = *etag;
    std::erase(plain, '"');
    if (is_blob_name(plain) && plain.size() == file.etag.size() && plain != file.etag) {
      throw Mismatch{"its hash", file.etag, plain};
    }
  }
  const std::string validator = strong_etag(head);
  std::optional<int64_t> size;
  if (head.status == 206) {
    const auto range = content_range(head);
    if (!range || range->start != offset_) {
      throw Mismatch{"the range sent", "from byte " + std::to_string(offset_), "another one"};
    }
    if (!validator.empty() && !validator_.empty() && validator != validator_) {
      throw Mismatch{"its ETag", validator_, validator};
    }
    size = range->total;
  } else {
    if (offset_ > 0) restart();
    if (const std::string* length = head.last_header("content-length")) size = number(*length);
  }
  if (size && *size != file.size) {
    if (head.status == 206) throw Mismatch{"its size", bytes_text(file.size), bytes_text(*size)};
    wrong_size_ = size;
    return;
  }
  if (validator != validator_ || offset_ == 0) {
    validator_ = validator;
    write_note();
  }
}

void BlobTransfer::write_note() {
  const Json note = {{"etag", job_.file.etag},
                     {"size", job_.file.size},
                     {"file", job_.repository_id + "/" + job_.file.path},
                     {"validator", validator_}};
  const fs::path file = job_.repository->part_note(job_.file.etag);
  try {
    write_file_atomic(file, note.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (const IoError&) {
    if (free_disk_bytes(file) == 0) fail_write(file, ENOSPC);
    throw;
  }
}

void BlobTransfer::on_bytes(std::string_view bytes) {
  if (wrong_size_) {
    wrong_start_ += bytes.substr(0, kMaxPointerBytes);
    if (wrong_start_.size() < kMaxPointerBytes) return;
    throw Mismatch{"its size", std::to_string(job_.file.size) + " bytes",
                   std::to_string(*wrong_size_) + " bytes"};
  }
  if (static_cast<int64_t>(bytes.size()) > job_.file.size - offset_) {
    throw Mismatch{"its size", std::to_string(job_.file.size) + " bytes", "more"};
  }
  shared_.bytes_received += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_write(job_.repository->part(job_.file.etag), errno);
    bytes.remove_prefix(static_cast<size_t>(n));
    set_offset(offset_ + n);
  }
  hash_->advance(offset_);
}

void BlobTransfer::check_pointer() {
  throw IoError{{"lfs_pointer", job_.file.path,
                 name() + ": the hub sends a Git LFS pointer instead of the file",
                 "the repository or the mirror was copied without its large files"}};
}

std::string BlobTransfer::check_hash() {
  const HubFile& file = job_.file;
  const ContentHash::Digests digests = hash_->finish(shared_.stop);
  const std::string& got = file.is_sha256() ? digests.sha256 : digests.git_blob;
  if (got != file.etag) throw Mismatch{"its hash", file.etag, got};
  if (file.size < static_cast<int64_t>(kMaxPointerBytes)) {
    std::string start(kPointerStart.size(), '\0');
    const ssize_t n = ::pread(fd_, start.data(), start.size(), 0);
    if (n == static_cast<ssize_t>(start.size()) && start == kPointerStart) check_pointer();
  }
  return digests.sha256;
}

void BlobTransfer::put_in_place() {
  HubRepository& repository = *job_.repository;
  const fs::path part = repository.part(job_.file.etag);
  const fs::path blob = repository.blob(job_.file.etag);
  if (::fsync(fd_) != 0) fail_write(part, errno);
  if (::rename(part.c_str(), blob.c_str()) != 0) fail_write(blob, errno);
  sync_folder(blob.parent_path());
  ::unlink(repository.part_note(job_.file.etag).c_str());
}

}  // namespace mere
