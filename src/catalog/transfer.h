// Fetches blobs of hub repositories into the store: several at once, each resumable, each checked
// before it gets its name.
//
// A blob grows under blobs/<etag>.incomplete, beside a note of what it is a part of. It gets its
// name when its size and hash are those of the listing; otherwise it is thrown away, fetched once
// more, and then reported with what was expected and what came.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "catalog/hub.h"
#include "catalog/hub_cache.h"
#include "core/progress.h"

namespace mere {

struct TransferState {
  int64_t bytes_done = 0;  // of bytes_total, what earlier runs left included
  int64_t bytes_total = 0;
  int64_t bytes_received = 0;  // by this run: what a rate is made of
  int files_done = 0;
  int files_total = 0;
};

// A Progress that also hears of bytes. Called from the thread that started the work.
class TransferObserver : public Progress {
 public:
  virtual void on_transfer(const TransferState& state) = 0;
};

struct TransferOptions {
  HubOptions hub{};
  int parallel = 4;  // blobs at once
};

struct BlobJob {
  HubRepository* repository = nullptr;
  std::string repository_id;  // "owner/name"
  std::string commit;
  HubFile file;
};

struct FetchResult {
  std::map<std::string, std::string> sha256;  // by blob name
  int64_t received_bytes = 0;
};

// After it every job's blob is there with the right hash, and the records say so. Blobs that are
// there already are hashed first unless the record knows them and `verify_again` is false. What it
// throws leaves parts behind that the next call goes on with. The caller holds the repositories'
// locks.
FetchResult fetch_blobs(const HubAccess& access, const TransferOptions& options,
                        std::vector<BlobJob> jobs, bool verify_again, TransferObserver& observer);

}  // namespace mere
