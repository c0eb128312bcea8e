// Digest of a model's weights.
#include <map>
#include <set>

#include "catalog/file_hash.h"
#include "catalog/model_root.h"
#include "core/error.h"

namespace mere {
namespace {

constexpr size_t kMaxWeightFiles = 4096;

void add_weights(const fs::path& folder, const std::string& prefix,
                 std::map<std::string, fs::path>& files) {
  std::error_code ec;
  fs::directory_iterator it(folder, ec);
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (it->path().extension() != ".safetensors" || name[0] == '.') continue;
    if (!it->is_regular_file(ec)) continue;
    if (files.size() >= kMaxWeightFiles) {
      throw IoError{
          {"too_many_files", folder.string(),
           folder.string() + ": more than " + std::to_string(kMaxWeightFiles) + " weight files",
           ""}};
    }
    files.emplace(prefix + name, it->path());
  }
}

// "<component>/<file>" -> path. Named by component and not by place, so that a borrowed component
// gives the same digest as a copied one.
std::map<std::string, fs::path> weight_files(const ModelRoot& root) {
  std::set<std::string> components = {"text_encoder", "transformer", "vae"};
  for (const auto& [name, path] : root.component_paths) components.insert(name);
  std::map<std::string, fs::path> files;
  for (const std::string& name : components) {
    add_weights(root.component(name), name + "/", files);
  }
  if (files.empty()) add_weights(root.path, "", files);
  return files;
}

}  // namespace

std::string model_digest(const ModelRoot& root, const Progress* progress) {
  RememberedHashes hashes;
  std::string lines;
  for (const auto& [name, path] : weight_files(root)) {
    if (progress != nullptr) progress->check_cancelled();
    lines += hashes.sha256(path, progress) + "  " + name + "\n";
  }
  hashes.save();
  return sha256_hex(lines);
}

}  // namespace mere
