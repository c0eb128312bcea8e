// Files of a model's folder, each content once however it is reached.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "core/files.h"

namespace mere {

// What makes two paths the same file.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

struct StoredFile {
  fs::path path;    // in the folder
  fs::path target;  // of the link it is, canonical; empty when it is no link
  FileIdentity identity;
  int64_t bytes = 0;
};

// Regular files below `folder` and what links to such files lead to; links to folders are not
// followed, so that a loop ends and nothing outside is counted. At most 100,000.
std::vector<StoredFile> files_of(const fs::path& folder);

}  // namespace mere
