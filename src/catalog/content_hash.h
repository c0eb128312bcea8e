// Hashes a file while it grows: a thread reads behind the writer, so that what is hashed is what is
// on the disk, the network never waits, and a part of an earlier run is hashed the same way.
//
//   ContentHash hash(fd, file.size, !file.is_sha256());
//   ... write; hash.advance(bytes_in_file); ...
//   const ContentHash::Digests digests = hash.finish(stop);
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace mere {

class ContentHash {
 public:
  struct Digests {
    std::string sha256;    // lower-case hex
    std::string git_blob;  // SHA-1 of "blob <size>\0" and the content; empty unless asked for
  };

  // `fd` stays open until this is destroyed. `size`: of the whole file, which the git hash begins
  // with.
  ContentHash(int fd, int64_t size, bool git_blob);
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  // The first `bytes` bytes of the file are final.
  void advance(int64_t bytes);
  int64_t hashed() const;
  // Waits for everything advanced to; Cancelled when `stop` answers true, IoError when the file
  // cannot be read.
  Digests finish(const std::function<bool()>& stop);

 private:
  void run();

  int fd_;
  int64_t size_;
  bool git_blob_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t available_ = 0;
  int64_t hashed_ = 0;
  bool finishing_ = false;
  bool abandoned_ = false;
  bool done_ = false;
  int read_error_ = 0;
  Digests digests_;
  std::thread thread_;
};

}  // namespace mere
