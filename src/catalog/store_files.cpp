#include "catalog/store_files.h"

#include <sys/stat.h>

namespace mere {
namespace {

constexpr size_t kMaxFiles = 100'000;

}  // namespace

std::vector<StoredFile> files_of(const fs::path& folder) {
  std::vector<StoredFile> files;
  std::error_code ec;
  const fs::path root = fs::canonical(folder, ec);
  if (ec) return files;
  for (fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, ec),
       end;
       !ec && it != end && files.size() < kMaxFiles; it.increment(ec)) {
    struct stat st {};
    if (::stat(it->path().c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
    StoredFile file{it->path(), {}, {st.st_dev, st.st_ino}, int64_t{st.st_size}};
    std::error_code status;
    if (it->is_symlink(status)) file.target = fs::canonical(it->path(), status);
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace mere
