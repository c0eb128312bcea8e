#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "catalog/glob.h"
#include "catalog/names.h"
#include "catalog/pull.h"
#include "core/error.h"
#include "core/json.h"
#include "core/system.h"

namespace mere {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kSmallestReserve = 2 * kGiB;
constexpr int64_t kModelsVolumeNeed = int64_t{64} << 20;
constexpr int64_t kLowDisk = 10 * kGiB;
constexpr const char* kManifestName = "mererun_model.json";

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

[[noreturn]] void refuse_path(const std::string& repository, const std::string& path,
                              const std::string& why) {
  throw IoError{{"path_refused", repository,
                 repository + " lists the file \"" + printable(path) + "\", which " + why, ""}};
}

// Files of one source that the catalog asks for, with where they go.
std::vector<PlannedFile> selected_files(const HubSource& source, size_t index,
                                        std::vector<HubFile> listed) {
  std::vector<PlannedFile> files;
  for (HubFile& file : listed) {
    // A path this long is only looked at when it could be chosen.
    if (file.path.size() > 4096 && !source.include.empty()) continue;
    if (!is_selected(source.include, source.exclude, file.path)) continue;
    if (const std::string problem = path_problem(file.path); !problem.empty()) {
      refuse_path(source.repository, file.path, problem);
    }
    if (!is_blob_name(file.etag)) {
      refuse_path(source.repository, file.path, "comes without a hash to check it by");
    }
    PlannedFile planned{.source = index, .file = std::move(file)};
    planned.install_path =
        source.mount.empty() ? planned.file.path : source.mount + "/" + planned.file.path;
    if (const std::string problem = path_problem(planned.install_path); !problem.empty()) {
      refuse_path(source.repository, planned.install_path, problem);
    }
    // This program writes its own.
    if (planned.install_path == kManifestName) continue;
    files.push_back(std::move(planned));
  }
  if (files.empty()) {
    throw IoError{{"hub_files_missing", source.repository,
                   source.repository + " holds none of the files that the catalog names",
                   "the repository has changed; update mere.run"}};
  }
  return files;
}

// Two files in one place, a file that is another one's folder, names that differ by case alone.
void check_places(const CatalogModel& model, const std::vector<PlannedFile>& files) {
  std::set<std::string> names;
  for (const PlannedFile& file : files) {
    const std::string& repository = model.sources[file.source].repository;
    if (!names.insert(lower(file.install_path)).second) {
      refuse_path(repository, file.install_path, "is there twice (upper and lower case are one)");
    }
  }
  for (const PlannedFile& file : files) {
    const fs::path place = lower(file.install_path);
    for (fs::path above = place.parent_path(); !above.empty(); above = above.parent_path()) {
      if (names.contains(above.string())) {
        refuse_path(model.sources[file.source].repository, file.install_path,
                    "lies below another file");
      }
    }
  }
}

void look_at_disk(PullPlan& plan, const PullRequest& request) {
  // Where it cannot be found out, writing will tell.
  const auto free_disk = [&](const fs::path& path) {
    return (request.free_disk ? request.free_disk : free_disk_bytes)(path).value_or(INT64_MAX);
  };
  const int64_t estimate = plan.model->download_bytes.value_or(plan.total_bytes);
  const int64_t reserve = std::max(kSmallestReserve, estimate / 5);
  plan.disk_need_bytes = plan.fetch_bytes > 0 ? plan.fetch_bytes + reserve : 0;
  plan.disk_free_bytes = free_disk(request.hub_dir);
  if (plan.disk_free_bytes < plan.disk_need_bytes) {
    plan.blockers.push_back(
        {"disk_space",
         "not enough room in " + request.hub_dir.string() + ": " + human_bytes(plan.fetch_bytes) +
             " to fetch and " + human_bytes(reserve) + " in reserve, " +
             human_bytes(plan.disk_free_bytes) + " free",
         "make room, or choose another disk with --cache-dir or MERERUN_HUB_CACHE"});
  } else if (plan.fetch_bytes > 0 && plan.disk_free_bytes - plan.fetch_bytes < kLowDisk) {
    plan.warnings.push_back("after this only " +
                            human_bytes(plan.disk_free_bytes - plan.fetch_bytes) +
                            " will be free in " + request.hub_dir.string());
  }
  if (const int64_t free = free_disk(request.models_dir); free < kModelsVolumeNeed) {
    plan.blockers.push_back({"disk_space",
                             "not enough room in " + request.models_dir.string() + ": " +
                                 human_bytes(free) + " free, " + human_bytes(kModelsVolumeNeed) +
                                 " needed",
                             "make room, or choose another folder with --models-root"});
  }
}

}  // namespace

std::vector<PullBlocker> local_blockers(const CatalogModel& model, const PullRequest& request) {
  std::vector<PullBlocker> blockers;
  if (model.sources.empty()) {
    blockers.push_back({"no_public_source", "no public source is known for it",
                        "put its folder into the models folder yourself"});
    return blockers;
  }
  const int64_t memory =
      request.physical_memory_bytes > 0 ? request.physical_memory_bytes : physical_memory_bytes();
  if (!has_memory_gb(memory, model.min_memory_gb) && !request.allow_unsupported) {
    blockers.push_back({"model_unsupported",
                        "requires at least " + std::to_string(model.min_memory_gb) +
                            " GB of memory; detected " +
                            std::to_string((memory + kGiB / 2) / kGiB) + " GB",
                        "--allow-unsupported pulls it nevertheless"});
  }
  if (model.restricted() && !request.accept_license) {
    const std::string pages = license_pages(model);
    blockers.push_back(
        {"license_not_accepted", "its licence restricts use: " + license_names(model),
         (pages.empty() ? "" : "read " + pages + "; ") + "--accept-model-license accepts it"});
  }
  // A mirror may give out what the hub does not.
  if (model.needs_token && request.access.token.empty() &&
      request.access.endpoint == kDefaultHubEndpoint) {
    const std::string page = request.access.endpoint + "/" + model.sources.front().repository;
    blockers.push_back({"hub_token_missing", page + " needs a token, and none is set",
                        "open that page and accept its licence, then: mere.run config set "
                        "hf-token TOKEN"});
  }
  return blockers;
}

void throw_blocker(const std::string& id, const PullBlocker& blocker) {
  ErrorInfo info{blocker.code, id, id + ": " + blocker.message, blocker.hint};
  if (blocker.code == "disk_space" || blocker.code == "model_unsupported") {
    throw ResourceError{std::move(info)};
  }
  throw UsageError{std::move(info)};
}

PullPlan plan_pull(const CatalogModel& model, const PullRequest& request,
                   TransferObserver& observer) {
  PullPlan plan{.model = &model, .destination = request.models_dir / model.id};
  if (!request.force && is_installed_whole(plan.destination, model.id)) {
    plan.installed = true;
    return plan;
  }
  plan.blockers = local_blockers(model, request);
  if (!plan.blockers.empty()) return plan;
  Hub hub(request.access, request.transfer.hub, [&observer] { return observer.cancelled(); });
  std::set<std::pair<std::string, std::string>> counted;
  for (size_t i = 0; i < model.sources.size(); ++i) {
    const HubSource& source = model.sources[i];
    const HubRepository repository(request.hub_dir, source.repository);
    plan.commits.push_back(hub.resolve_commit(source.repository, source.revision));
    auto files = selected_files(source, i, hub.list_files(source.repository, plan.commits.back()));
    for (PlannedFile& file : files) {
      file.present = repository.has_blob(file.file.etag, file.file.size);
      if (!file.present) {
        file.part_bytes = repository.part_bytes(file.file.etag, file.file.size);
      }
      if (counted.emplace(source.repository, file.file.etag).second) {
        plan.total_bytes += file.file.size;
        if (!file.present) plan.fetch_bytes += file.file.size - file.part_bytes;
      }
      plan.files.push_back(std::move(file));
    }
  }
  plan.listed = true;
  check_places(model, plan.files);
  look_at_disk(plan, request);
  return plan;
}

}  // namespace mere
