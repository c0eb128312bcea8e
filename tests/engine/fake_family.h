// A family without weights: the tests say what it answers and see what it was given.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/files.h"
#include "families/image_family.h"

namespace mere {

struct FakeFamilyState {
  ImageModelInfo info;
  int loads = 0;
  ImageJob job;  // of the last generate()
  // Called before picture i is drawn; may throw.
  std::function<void(size_t i, Progress& progress)> before_picture;
};
// Shared by all tests of the program; reset_fake_family() at the start of each.
FakeFamilyState& fake_family();
void reset_fake_family();

// What the program said.
class RecordingProgress : public Progress {
 public:
  void note(std::string_view text) override { notes.emplace_back(text); }
  void warn(std::string_view text) override { warnings.emplace_back(text); }
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
  std::vector<std::string> events;  // "stage step/total"

 protected:
  void on_report(Stage stage, int64_t step, int64_t total) override {
    events.push_back(std::string(stage_name(stage)) + " " + std::to_string(step) + "/" +
                     std::to_string(total));
  }
};

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }
  fs::path write(const std::string& name, const std::string& text) const;
  // Names of everything below, sorted.
  std::vector<std::string> names() const;

 private:
  fs::path path_;
};

}  // namespace mere
