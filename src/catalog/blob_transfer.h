// One blob on its way into the store; transfer.cpp runs several.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "catalog/content_hash.h"
#include "catalog/transfer.h"

namespace mere {

// What the transfers of one run share.
struct TransferShared {
  const RetryPolicy& retry;
  bool verify_again = false;
  std::function<bool()> stop{};
  std::function<void(std::string)> note{};  // safe from any thread
  std::mutex records{};                     // guards the repositories' records
  std::atomic<int64_t> bytes_done{0};
  std::atomic<int64_t> bytes_received{0};
};

class BlobTransfer : public HttpSink {
 public:
  BlobTransfer(const BlobJob& job, Hub& hub, TransferShared& shared);
  ~BlobTransfer() override;

  // Returns the SHA-256 of the blob, which is in its place then.
  std::string run();

  void on_head(const HttpResponse& head) override;
  void on_bytes(std::string_view bytes) override;

 private:
  // The content is not the one asked for; the part is of no use.
  struct Mismatch {
    std::string what, expected, got;
  };

  bool check_present(std::string& sha256);
  void open_part();
  void restart();
  void download();
  void download_once();
  void write_note();
  void check_pointer();
  std::string check_hash();
  void put_in_place();
  void set_offset(int64_t offset);
  std::string name() const;

  const BlobJob& job_;
  Hub& hub_;
  TransferShared& shared_;
  int fd_ = -1;
  int64_t offset_ = 0;                   // bytes of the part
  int64_t written_to_ = 0;               // bytes that the system was told to write out
  std::string validator_{};              // strong ETag of the answer that the part came from
  std::optional<int64_t> wrong_size_{};  // the answer says it has another size
  std::string wrong_start_{};
  std::unique_ptr<ContentHash> hash_{};
};

}  // namespace mere
