// The install root of a model: links to blobs and the manifest.
#include <array>
#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <linux/fs.h>
#include <set>
#include <stdio.h>
#include <unistd.h>

#include "catalog/model_root.h"
#include "catalog/names.h"
#include "catalog/pull.h"
#include "core/error.h"
#include "core/json.h"

namespace mere {
namespace {

constexpr const char* kManifestName = "mererun_model.json";
constexpr int kSchema = 3;
constexpr size_t kMaxManifestBytes = size_t{16} << 20;
constexpr size_t kMaxEntries = 100'000;

std::string iso_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

Json manifest_sources(const PullPlan& plan) {
  Json sources = Json::array();
  for (size_t i = 0; i < plan.model->sources.size(); ++i) {
    const HubSource& source = plan.model->sources[i];
    Json entry = {{"role", source.role.empty() ? "model" : source.role},
                  {"repository", source.repository},
                  {"revision", plan.commits[i]}};
    if (!source.mount.empty()) entry["destination_path"] = source.mount;
    sources.push_back(std::move(entry));
  }
  return sources;
}

Json manifest_terms(const PullPlan& plan) {
  Json terms = Json::array();
  for (const UsageTerms& term : plan.model->terms) {
    std::string revision;
    for (size_t i = 0; i < plan.model->sources.size(); ++i) {
      if (plan.model->sources[i].repository == term.source_repository) revision = plan.commits[i];
    }
    terms.push_back({{"component", term.component},
                     {"license", term.license},
                     {"summary", term.summary},
                     {"license_url", term.license_url},
                     {"source_repo_id", term.source_repository},
                     {"source_revision", revision}});
  }
  return terms;
}

Json manifest_of(const PullPlan& plan, const std::map<std::string, std::string>& sha256) {
  const CatalogModel& model = *plan.model;
  Json json = {{"schemaVersion", kSchema},
               {"id", model.id},
               {"createdAt", iso_now()},
               {"upstreamRepoId", model.sources.front().repository},
               {"sources", manifest_sources(plan)},
               {"supports", model.supports}};
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  };
  set("engine", model.engine);
  set("family", model.family);
  set("tier", model.tier);
  set("variant", model.variant);
  set("precision", model.precision);
  set("license", model.license);
  if (model.quantization) {
    json["quantization"] = {{"bits", model.quantization->bits},
                            {"groupSize", model.quantization->group_size},
                            {"scheme", model.quantization->scheme}};
  }
  Json defaults = Json::object();
  if (model.default_steps) defaults["steps"] = *model.default_steps;
  if (model.default_cfg) defaults["cfg"] = *model.default_cfg;
  if (model.default_sigma_shift) defaults["sigma_shift"] = *model.default_sigma_shift;
  if (!defaults.empty()) json["defaults"] = std::move(defaults);
  if (model.restricted()) {
    json["usageTerms"] = manifest_terms(plan);
    json["usageTermsAcknowledged"] = true;
  }
  json["files"] = Json::array();
  for (const PlannedFile& file : plan.files) {
    json["files"].push_back({{"path", file.install_path},
                             {"size", file.file.size},
                             {"sha256", sha256.at(file.file.etag)},
                             {"source", file.source}});
  }
  return json;
}

// Hidden folders of installs that did not come to their end. Nobody else installs this id: the
// caller holds the lock of its repository.
void remove_leftovers(const fs::path& models_dir, const std::string& id) {
  std::error_code ec;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(models_dir, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("." + id + ".installing-") || name.starts_with("." + id + ".replaced-")) {
      found.push_back(it->path());
    }
  }
  for (const fs::path& folder : found) fs::remove_all(folder, ec);
}

[[noreturn]] void fail_install(const fs::path& path, int reason) {
  throw IoError{{reason == ENOSPC ? "disk_full" : "file_unwritable", path.string(),
                 path.string() + ": cannot install: " + std::strerror(reason), ""}};
}

// `built` takes the place of `target` in one step; what was there goes.
void put_in_place(const fs::path& built, const fs::path& target) {
  std::error_code ec;
  const bool replaces = fs::exists(fs::symlink_status(target, ec));
  if (!replaces) {
    if (::rename(built.c_str(), target.c_str()) != 0) fail_install(target, errno);
  } else if (::renameat2(AT_FDCWD, built.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(built, ec);
  } else {
    // File systems that cannot exchange: for an instant the id is absent, never half.
    fs::path old = built;
    old += ".old";
    if (::rename(target.c_str(), old.c_str()) != 0) fail_install(target, errno);
    if (::rename(built.c_str(), target.c_str()) != 0) {
      const int reason = errno;
      ::rename(old.c_str(), target.c_str());
      fail_install(target, reason);
    }
    fs::remove_all(old, ec);
  }
  sync_folder(target.parent_path());
}

void build(const PullPlan& plan, const PullRequest& request, const fs::path& folder,
           const std::map<std::string, std::string>& sha256) {
  make_folders(folder);
  const fs::path hub_dir = fs::canonical(request.hub_dir);
  for (const PlannedFile& file : plan.files) {
    const fs::path link = folder / file.install_path;
    make_folders(link.parent_path());
    const HubRepository repository(hub_dir, plan.model->sources[file.source].repository);
    const fs::path blob = repository.blob(file.file.etag);
    if (::symlink(blob.c_str(), link.c_str()) != 0) fail_install(link, errno);
  }
  write_file_atomic(folder / kManifestName, manifest_of(plan, sha256).dump(2) + "\n");
  std::error_code ec;
  std::vector<fs::path> folders = {folder};
  for (fs::recursive_directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->is_directory(ec) && !it->is_symlink(ec)) folders.push_back(it->path());
  }
  for (const fs::path& each : folders) sync_folder(each);
}

}  // namespace

bool is_installed_whole(const fs::path& folder, const std::string& id) {
  try {
    const std::string source = (folder / kManifestName).string();
    const Json manifest = parse_json_file(source, kMaxManifestBytes);
    if (json_string_or(manifest, "id", "", source) != id) return false;
    const auto files = manifest.find("files");
    if (files == manifest.end() || !files->is_array() || files->empty()) return false;
    for (const Json& file : *files) {
      const std::string path = json_string_or(file, "path", "", source);
      if (!path_problem(path).empty()) return false;
      std::error_code ec;
      const fs::path full = folder / path;
      if (!fs::is_regular_file(full, ec)) return false;
      const auto size = static_cast<int64_t>(fs::file_size(full, ec));
      if (ec || size != json_int(file, "size", 0, INT64_MAX, source)) return false;
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void check_replaceable(const fs::path& folder) {
  std::error_code ec;
  if (fs::is_symlink(folder, ec) || !fs::exists(folder, ec)) return;
  const auto refuse = [&](const std::string& what) {
    throw IoError{{"install_in_the_way", folder.string(),
                   folder.string() + " holds " + what + " that mere.run did not put there",
                   "move it away, or choose another folder with --models-root"}};
  };
  if (!fs::is_directory(folder, ec)) refuse("a file");
  size_t entries = 0;
  for (fs::recursive_directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (++entries > kMaxEntries) refuse("files");
    if (it->is_symlink(ec) || it->is_directory(ec)) continue;
    if (it.depth() == 0 && it->path().filename() == kManifestName) continue;
    refuse("\"" + printable(it->path().filename().string()) + "\"");
  }
}

void install_model(const PullPlan& plan, const PullRequest& request,
                   const std::map<std::string, std::string>& sha256) {
  make_folders(request.models_dir);
  const std::string& id = plan.model->id;
  check_replaceable(plan.destination);
  remove_leftovers(request.models_dir, id);
  const fs::path built =
      request.models_dir / ("." + id + ".installing-" + std::to_string(::getpid()));
  std::error_code ec;
  try {
    build(plan, request, built, sha256);
    // Exactly what `image generate --model ID` will do; other kinds of models have no reader yet.
    if (plan.model->category == "image") open_model_root(built);
    if (!is_installed_whole(built, id)) {
      throw InternalError{{"install_incomplete", id, id + ": the install is not whole", ""}};
    }
    put_in_place(built, plan.destination);
  } catch (...) {
    fs::remove_all(built, ec);
    throw;
  }
  if (plan.model->category == "image") resolve_image_model(id, request.models_dir, {});
}

}  // namespace mere
