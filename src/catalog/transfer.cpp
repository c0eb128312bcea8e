#include "catalog/transfer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <set>
#include <thread>

#include "catalog/blob_transfer.h"

namespace mere {
namespace {

constexpr std::chrono::milliseconds kReportEvery{100};
// After a blob this large its record is written at once: hashing it again would take seconds.
constexpr int64_t kRecordAtOnceBytes = int64_t{64} << 20;

// Runs jobs on threads of its own while the caller's thread reports.
class Run {
 public:
  Run(const HubAccess& access, const TransferOptions& options, std::vector<BlobJob> jobs,
      bool verify_again, TransferObserver& observer)
      : access_(access),
        options_(options),
        jobs_(std::move(jobs)),
        observer_(observer),
        shared_{.retry = options.hub.retry, .verify_again = verify_again} {
    shared_.stop = [this] { return failed_ || observer_.cancelled(); };
    shared_.note = [this](std::string text) {
      const std::lock_guard lock(mutex_);
      notes_.push_back(std::move(text));
    };
    for (const BlobJob& job : jobs_) bytes_total_ += job.file.size;
  }

  FetchResult run() {
    const size_t count =
        std::min(jobs_.size(), static_cast<size_t>(std::max(1, options_.parallel)));
    std::vector<std::thread> threads;
    running_ = count;
    for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
    {
      std::unique_lock lock(mutex_);
      while (running_ > 0) {
        changed_.wait_for(lock, kReportEvery);
        report(lock);
      }
      report(lock);
    }
    for (std::thread& thread : threads) thread.join();
    for (const BlobJob& job : jobs_) job.repository->save_verified();
    if (problem_) std::rethrow_exception(problem_);
    observer_.check_cancelled();
    return {std::move(sha256_), shared_.bytes_received};
  }

 private:
  void work() {
    try {
      Hub hub(access_, options_.hub, shared_.stop);
      for (;;) {
        const size_t index = next_.fetch_add(1);
        if (index >= jobs_.size() || shared_.stop()) break;
        const BlobJob& job = jobs_[index];
        const std::string sha256 = BlobTransfer(job, hub, shared_).run();
        {
          const std::lock_guard lock(shared_.records);
          job.repository->set_verified(job.file.etag, sha256);
          if (job.file.size >= kRecordAtOnceBytes) job.repository->save_verified();
        }
        const std::lock_guard lock(mutex_);
        sha256_[job.file.etag] = sha256;
        ++files_done_;
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      // The others end with Cancelled once one has failed.
      if (!problem_) problem_ = std::current_exception();
      failed_ = true;
    }
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  void report(std::unique_lock<std::mutex>& lock) {
    std::vector<std::string> notes;
    notes.swap(notes_);
    const TransferState state{shared_.bytes_done, bytes_total_, shared_.bytes_received, files_done_,
                              static_cast<int>(jobs_.size())};
    lock.unlock();
    for (const std::string& note : notes) observer_.note(note);
    observer_.on_transfer(state);
    lock.lock();
  }

  const HubAccess& access_;
  const TransferOptions& options_;
  const std::vector<BlobJob> jobs_;
  TransferObserver& observer_;
  TransferShared shared_;
  int64_t bytes_total_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t running_ = 0;
  int files_done_ = 0;
  std::vector<std::string> notes_;
  std::exception_ptr problem_;
  std::map<std::string, std::string> sha256_;
};

}  // namespace

FetchResult fetch_blobs(const HubAccess& access, const TransferOptions& options,
                        std::vector<BlobJob> jobs, bool verify_again, TransferObserver& observer) {
  // Files with the same content are one blob.
  std::set<std::pair<const HubRepository*, std::string>> seen;
  std::erase_if(jobs, [&](const BlobJob& job) {
    return !seen.emplace(job.repository, job.file.etag).second;
  });
  // The largest first: the end is then not one long file alone.
  std::ranges::stable_sort(jobs, std::ranges::greater(),
                           [](const BlobJob& job) { return job.file.size; });
  return Run(access, options, std::move(jobs), verify_again, observer).run();
}

}  // namespace mere
