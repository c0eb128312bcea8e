#include "catalog/content_hash.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <openssl/evp.h>
#include <unistd.h>
#include <vector>

#include "core/error.h"

namespace mere {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;  // stays in a processor's cache
constexpr int64_t kWriteOutBytes = int64_t{8} << 20;

class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : ctx_(EVP_MD_CTX_new()) {
    if (!ctx_ || EVP_DigestInit_ex(ctx_.get(), kind, nullptr) != 1) {
      throw InternalError{{"hash_failed", "", "a hash function is not available", ""}};
    }
  }
  void add(const void* bytes, size_t size) { EVP_DigestUpdate(ctx_.get(), bytes, size); }
  std::string hex() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    EVP_DigestFinal_ex(ctx_.get(), bytes, &length);
    static constexpr char kHex[] = "0123456789abcdef";
    std::string out;
    for (unsigned int i = 0; i < length; ++i) out += {kHex[bytes[i] >> 4], kHex[bytes[i] & 15]};
    return out;
  }

 private:
  struct Deleter {
    void operator()(EVP_MD_CTX* ctx) const { EVP_MD_CTX_free(ctx); }
  };
  std::unique_ptr<EVP_MD_CTX, Deleter> ctx_;
};

}  // namespace

ContentHash::ContentHash(int fd, int64_t size, bool git_blob)
    : fd_(fd), size_(size), git_blob_(git_blob), thread_([this] { run(); }) {}

ContentHash::~ContentHash() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ContentHash::advance(int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    available_ = std::max(available_, bytes);
  }
  changed_.notify_all();
}

int64_t ContentHash::hashed() const {
  const std::lock_guard lock(mutex_);
  return hashed_;
}

ContentHash::Digests ContentHash::finish(const std::function<bool()>& stop) {
  std::unique_lock lock(mutex_);
  finishing_ = true;
  changed_.notify_all();
  while (!done_) {
    if (stop && stop()) throw Cancelled();
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  if (read_error_ != 0) {
    throw IoError{
        {"file_unreadable", "",
         std::string("cannot read back what was downloaded: ") + std::strerror(read_error_), ""}};
  }
  return digests_;
}

void ContentHash::run() {
  Digest sha256(EVP_sha256());
  Digest sha1(EVP_sha1());
  if (git_blob_) {
    const std::string head = "blob " + std::to_string(size_);
    sha1.add(head.c_str(), head.size() + 1);
  }
  std::vector<unsigned char> piece(kPieceBytes);
  int64_t written_out = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    // A writer announces small pieces; waking for each would cost more than hashing.
    changed_.wait(lock, [&] {
      return abandoned_ || finishing_ || available_ - hashed_ >= static_cast<int64_t>(kPieceBytes);
    });
    if (abandoned_) return;
    if (hashed_ == available_ && finishing_) break;
    const int64_t at = hashed_;
    const auto want =
        static_cast<size_t>(std::min<int64_t>(available_ - at, static_cast<int64_t>(kPieceBytes)));
    lock.unlock();
    const ssize_t n = ::pread(fd_, piece.data(), want, at);
    const int reason = n < 0 ? errno : EIO;
    if (n > 0) {
      sha256.add(piece.data(), static_cast<size_t>(n));
      if (git_blob_) sha1.add(piece.data(), static_cast<size_t>(n));
      // Here and not where it is written: asking can wait for the disk.
      if (at + n - written_out >= kWriteOutBytes) {
        ::sync_file_range(fd_, written_out, at + n - written_out, SYNC_FILE_RANGE_WRITE);
        written_out = at + n;
      }
    }
    lock.lock();
    if (n > 0) {
      hashed_ += n;
    } else if (reason != EINTR) {
      read_error_ = reason;
      break;
    }
  }
  if (read_error_ == 0) digests_ = {sha256.hex(), git_blob_ ? sha1.hex() : ""};
  done_ = true;
  changed_.notify_all();
}

}  // namespace mere
