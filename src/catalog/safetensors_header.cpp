#include "catalog/safetensors_header.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{32} << 20;
constexpr size_t kMaxRank = 8;
constexpr std::string_view kLfsSignature = "version https://git-lfs";

[[noreturn]] void fail(const fs::path& path, const std::string& what, const std::string& hint = "",
                       const char* code = "weights_damaged") {
  throw IoError{{code, path.string(), path.string() + ": " + what, hint}};
}

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat st {};
    if (fd_ < 0 || ::fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode)) {
      if (fd_ >= 0) ::close(fd_);
      throw IoError{{"file_unreadable", path.string(),
                     path.string() + ": cannot open, or not a regular file", ""}};
    }
    size_ = static_cast<uint64_t>(st.st_size);
  }
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  uint64_t size() const { return size_; }

  std::string read(uint64_t at, uint64_t count) const {
    std::string out(count, '\0');
    size_t done = 0;
    while (done < count) {
      const ssize_t n =
          ::pread(fd_, out.data() + done, count - done, static_cast<off_t>(at + done));
      if (n <= 0) fail(path_, "cannot read");
      done += static_cast<size_t>(n);
    }
    return out;
  }

 private:
  const fs::path& path_;
  int fd_;
  uint64_t size_ = 0;
};

TensorEntry read_entry(const Json& value, const std::string& name, const fs::path& path,
                       uint64_t& data_end) {
  const auto damaged = [&](const char* what) {
    fail(path, "tensor \"" + printable(name) + "\" " + what);
  };
  if (!value.is_object()) damaged("is not described by an object");
  TensorEntry entry;
  const auto dtype = value.find("dtype");
  if (dtype == value.end() || !dtype->is_string()) damaged("has no dtype");
  entry.dtype = printable(dtype->get<std::string>(), 20);
  const auto shape = value.find("shape");
  if (shape == value.end() || !shape->is_array() || shape->size() > kMaxRank) {
    damaged("has no valid shape");
  }
  for (const Json& side : *shape) {
    if (!side.is_number_unsigned() || side.get<uint64_t>() > INT32_MAX) {
      damaged("has no valid shape");
    }
    entry.shape.push_back(side.get<int64_t>());
  }
  const auto offsets = value.find("data_offsets");
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned() ||
      (*offsets)[0].get<uint64_t>() > (*offsets)[1].get<uint64_t>()) {
    damaged("has no valid data_offsets");
  }
  data_end = std::max(data_end, (*offsets)[1].get<uint64_t>());
  return entry;
}

}  // namespace

std::map<std::string, TensorEntry> read_safetensors_header(const fs::path& path) {
  const OpenFile file(path);
  const std::string start = file.read(0, std::min<uint64_t>(file.size(), kLfsSignature.size()));
  if (start == kLfsSignature) {
    fail(path, "this is a Git LFS pointer, not the weights", "fetch the real file: git lfs pull");
  }
  if (start.size() < 8) {
    fail(path, "too short to be a safetensors file", "the file is truncated", "weights_truncated");
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(start[i]);
  if (length > file.size() - 8 || length > kMaxHeaderBytes) {
    fail(path, "its header does not fit it", "the file is truncated or not a safetensors file",
         length <= kMaxHeaderBytes ? "weights_truncated" : "weights_damaged");
  }
  const Json header = parse_json(file.read(8, length), path.string() + " (header)");
  if (!header.is_object()) fail(path, "header is not a JSON object");
  std::map<std::string, TensorEntry> tensors;
  uint64_t data_end = 0;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    tensors.emplace(name, read_entry(value, name, path, data_end));
  }
  const uint64_t room = file.size() - 8 - length;
  if (data_end > room) {
    fail(path,
         "holds " + std::to_string(room) + " bytes of data, and its header tells of " +
             std::to_string(data_end),
         "the file is truncated", "weights_truncated");
  }
  return tensors;
}

}  // namespace mere
