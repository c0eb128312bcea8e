// A queue of its own in a temporary folder, on a machine and at a time that the test says.
#pragma once

#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "fake_family.h"

#include "engine/admission.h"

namespace mere {

// 256 GiB with plenty free: six permits.
inline HostSample large_host() {
  return {.physical = 256 * kGib,
          .available = 200 * kGib,
          .own = kGib / 4,
          .free = 150 * kGib,
          .inactive = 50 * kGib,
          .active = 20 * kGib,
          .disk = 500 * kGib};
}

inline HostSample host_with(int64_t physical_gib, int64_t available_gib) {
  HostSample host = large_host();
  host.physical = physical_gib * kGib;
  host.available = available_gib * kGib;
  host.free = available_gib * kGib;
  host.inactive = 0;
  host.active = (physical_gib - available_gib) * kGib;
  return host;
}

// Keeps what it was told; `on_wait` is called whenever the job waits.
class WaitingProgress : public RecordingProgress {
 public:
  std::vector<Waiting> waits;
  std::function<void(const Waiting&)> on_wait;

 protected:
  void on_waiting(const Waiting& waiting) override {
    waits.push_back(waiting);
    if (on_wait) on_wait(waiting);
  }
};

class AdmissionFixture : public ::testing::Test {
 protected:
  fs::path ledger_folder() const { return folder.path() / "admission"; }
  fs::path state() const { return ledger_folder() / "state.json"; }

  Admission queue() {
    AdmissionOptions options;
    options.folder = ledger_folder();
    options.sample = [this] { return host; };
    options.clock = [this] { return now += 1; };
    options.poll = std::chrono::milliseconds(2);
    options.inherits = inherits;
    return Admission(options);
  }
  static Workload job(ResourceClass resource_class, const std::string& label = "test job") {
    Workload workload;
    workload.label = label;
    workload.base = resource_class;
    workload.model_bytes = kGib;
    return workload;
  }
  AdmissionLease take(ResourceClass resource_class) {
    return queue().acquire(job(resource_class), progress);
  }
  AdmissionLedger ledger() const { return read_ledger(state()); }

  TemporaryFolder folder;
  HostSample host = large_host();
  double now = 786'000'000;
  bool inherits = false;
  WaitingProgress progress;
};

}  // namespace mere
