// The store of downloaded files, in the layout of the Hugging Face hub cache, so that one cache
// serves several programs:
//
//   <hub>/models--owner--name/blobs/<etag>                    the content, named by its hash
//                            /blobs/<etag>.incomplete         a part of it (.json: of what)
//                            /snapshots/<commit>/<path>  ->   ../../blobs/<etag>
//                            /refs/<branch>                   the commit it was last seen at
//                            /.mererun-verified.json          blobs whose hash was checked here
//
// A name without ".incomplete" is only ever given to a whole, checked file, by rename.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/files.h"
#include "core/progress.h"

namespace mere {

// MERERUN_HUB_CACHE, else MERERUN_MODEL_CACHE_HOME/hub, else <app support>/hub, else (that cannot
// be made) <user cache>/hub. Not created.
fs::path hub_cache_dir();

// "models--owner--name"
std::string hub_folder_name(const std::string& repository);
inline constexpr std::string_view kVerifiedName = ".mererun-verified.json";

// <hub>/.mererun.lock: shared by pulls, exclusive for what removes.
fs::path storage_lock_file(const fs::path& hub_dir);

// One repository's folder. Methods do not lock: a writer holds lock_file().
class HubRepository {
 public:
  HubRepository(const fs::path& hub_dir, const std::string& repository);

  const fs::path& folder() const { return folder_; }
  fs::path lock_file() const;
  fs::path blob(const std::string& etag) const { return folder_ / "blobs" / etag; }
  fs::path part(const std::string& etag) const;
  fs::path part_note(const std::string& etag) const;

  // A whole blob of that size is there. Its content is not looked at.
  bool has_blob(const std::string& etag, int64_t size) const;
  // Bytes of it that a broken download left.
  int64_t part_bytes(const std::string& etag, int64_t size) const;

  // The blob's SHA-256 as found when its content was last checked; nullopt when it never was or
  // the file has changed since (size, times, inode).
  std::optional<std::string> verified_sha256(const std::string& etag);
  void set_verified(const std::string& etag, const std::string& sha256);
  void forget_verified(const std::string& etag);
  // Writes what set_verified() was told. A failure only costs hashing again.
  void save_verified();

  // snapshots/<commit>/<path> -> blob, made anew where it leads elsewhere.
  void link_snapshot(const std::string& commit, const std::string& path, const std::string& etag);
  void write_ref(const std::string& branch, const std::string& commit);
  // Removes what an interrupted run left beside the blobs, parts aside.
  void remove_leftovers();

 private:
  struct Verified {
    int64_t size = 0;
    int64_t inode = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    std::string sha256;
  };
  static std::optional<Verified> state_of(const fs::path& file);
  void load_verified();

  fs::path hub_dir_;
  std::string name_;  // models--owner--name
  fs::path folder_;
  bool loaded_ = false;
  bool changed_ = false;
  std::map<std::string, Verified> verified_;
};

// Creates a folder and its parents; IoError naming it.
void make_folders(const fs::path& folder);
// Makes renames and new names in `folder` last.
void sync_folder(const fs::path& folder);

}  // namespace mere
