#include "catalog/pull.h"

#include <algorithm>
#include <map>
#include <set>

#include "catalog/names.h"
#include "core/error.h"
#include "core/file_lock.h"

namespace mere {
namespace {

// One pull of a repository at a time; in one order, so that two pulls never wait for each other.
std::vector<FileLock> lock_repositories(const CatalogModel& model, const PullRequest& request,
                                        TransferObserver& observer) {
  std::set<fs::path> files;
  for (const HubSource& source : model.sources) {
    files.insert(HubRepository(request.hub_dir, source.repository).lock_file());
  }
  std::vector<FileLock> locks;
  for (const fs::path& file : files) {
    locks.push_back(FileLock::acquire(
        file, {.progress = &observer, .on_wait = [&] {
                 observer.note(model.id + ": another pull is at work on it, waiting for its end");
               }}));
  }
  return locks;
}

void write_snapshots(const PullPlan& plan, std::vector<HubRepository>& repositories) {
  for (const PlannedFile& file : plan.files) {
    repositories[file.source].link_snapshot(plan.commits[file.source], file.file.path,
                                            file.file.etag);
  }
  for (size_t i = 0; i < repositories.size(); ++i) {
    const std::string& revision = plan.model->sources[i].revision;
    if (!is_commit(revision)) repositories[i].write_ref(revision, plan.commits[i]);
  }
}

// What the catalog knows of single files holds whatever the hub says of them.
void check_pins(const PullPlan& plan, const std::map<std::string, std::string>& sha256) {
  for (const PlannedFile& file : plan.files) {
    for (const PinnedFile& pin : plan.model->sources[file.source].pins) {
      if (pin.path != file.file.path) continue;
      if (pin.bytes == file.file.size && pin.sha256 == sha256.at(file.file.etag)) continue;
      throw IoError{{"content_mismatch", pin.path,
                     plan.model->id + ": " + pin.path +
                         " is not the file that the catalog names: SHA-256 " + pin.sha256,
                     "the repository has changed; update mere.run"}};
    }
  }
}

PulledModel pull_one(const CatalogModel& model, const PullRequest& request,
                     TransferObserver& observer) {
  const fs::path destination = request.models_dir / model.id;
  if (!request.force && is_installed_whole(destination, model.id)) {
    observer.note(model.id + ": is here already");
    return {.id = model.id, .path = destination, .already_there = true};
  }
  check_replaceable(destination);
  make_folders(request.hub_dir);
  const FileLock storage = FileLock::acquire(
      storage_lock_file(request.hub_dir),
      {.progress = &observer,
       .on_wait = [&] { observer.note("the store is being cleaned, waiting for its end"); },
       .shared = true});
  const auto locks = lock_repositories(model, request, observer);
  const PullPlan plan = plan_pull(model, request, observer);
  if (plan.installed) {
    observer.note(model.id + ": is here already");
    return {.id = model.id, .path = destination, .already_there = true};
  }
  if (!plan.blockers.empty()) throw_blocker(model.id, plan.blockers.front());
  for (const std::string& warning : plan.warnings) observer.warn(warning);

  // Sources may share a repository, and must then share its record.
  std::vector<HubRepository> repositories;
  std::map<std::string, size_t> first_of;
  std::vector<BlobJob> jobs;
  for (const HubSource& source : model.sources) {
    first_of.emplace(source.repository, repositories.size());
    repositories.emplace_back(request.hub_dir, source.repository);
    repositories.back().remove_leftovers();
  }
  for (const PlannedFile& file : plan.files) {
    const std::string& repository = model.sources[file.source].repository;
    jobs.push_back(
        {&repositories[first_of[repository]], repository, plan.commits[file.source], file.file});
  }
  const FetchResult fetched =
      fetch_blobs(request.access, request.transfer, std::move(jobs), request.force, observer);
  check_pins(plan, fetched.sha256);
  write_snapshots(plan, repositories);
  install_model(plan, request, fetched.sha256);
  return {.id = model.id,
          .path = destination,
          .files = static_cast<int64_t>(plan.files.size()),
          .total_bytes = plan.total_bytes,
          .fetched_bytes = fetched.received_bytes,
          .commits = plan.commits};
}

// `model` after its companions, each once.
void add_with_companions(const CatalogModel& model, std::vector<const CatalogModel*>& order,
                         std::set<const CatalogModel*>& seen) {
  if (!seen.insert(&model).second) return;
  for (const std::string& id : model.companions) {
    const CatalogModel* companion = find_catalog_model(id);
    if (companion == nullptr) {
      throw InternalError{{"catalog_invalid", model.id,
                           model.id + ": the catalog does not know its companion " + id, ""}};
    }
    add_with_companions(*companion, order, seen);
  }
  order.push_back(&model);
}

}  // namespace

std::vector<PulledModel> pull_model(const CatalogModel& model, const PullRequest& request,
                                    TransferObserver& observer) {
  std::vector<const CatalogModel*> order;
  std::set<const CatalogModel*> seen;
  add_with_companions(model, order, seen);
  // Nothing is fetched for a model that cannot be had whole.
  for (const CatalogModel* each : order) {
    if (!request.force && is_installed_whole(request.models_dir / each->id, each->id)) continue;
    const auto blockers = local_blockers(*each, request);
    if (!blockers.empty()) throw_blocker(each->id, blockers.front());
  }
  std::vector<PulledModel> pulled;
  for (const CatalogModel* each : order) pulled.push_back(pull_one(*each, request, observer));
  return pulled;
}

}  // namespace mere
