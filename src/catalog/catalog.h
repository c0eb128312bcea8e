// The managed models as data: catalog/catalog.json at the top of the source tree, compiled in.
//
//   const CatalogModel* model = find_catalog_model("image-klein-nano");
//
// Ids are the public contract. Everything a pull, a listing or an admission needs to know of a
// model before it is on disk stands here; nothing here reads the disk or the network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mere {

// A file whose contents are known, whatever a server says of it.
struct PinnedFile {
  std::string path;  // in the repository
  int64_t bytes = 0;
  std::string sha256;
};

// Files of one revision of one Hub repository and where they go.
struct HubSource {
  std::string repository;            // "owner/name"
  std::string revision;              // commit of 40 hex digits, or a branch: "main"
  std::vector<std::string> include;  // globs over paths of the repository: '*' stays in a folder,
                                     // "**" crosses them. Empty: every file
  std::vector<std::string> exclude;  // taken out again
  std::string mount;                 // folder below the install root; empty: the root itself
  std::string role;                  // "model", "text_encoder", ...: for the manifest
  std::vector<PinnedFile> pins{};    // some of the files, often none
};

// A licence that must be accepted before the model is pulled.
struct UsageTerms {
  std::string component;  // "model", or the mount concerned
  std::string license;    // its name
  std::string summary;    // one line on what it restricts
  std::string license_url;
  std::string source_repository;
};

struct CatalogQuantization {
  int bits = 0;
  int group_size = 0;
  std::string scheme;  // "mlx-quantized-linear", ...
};

struct CatalogModel {
  std::string id;                         // "image-klein-nano"
  std::string category;                   // "image", "text", "speech", ...
  std::string family;                     // "klein"; empty where the catalog does not know it
  std::string engine;                     // "flux2-klein"
  std::string summary;                    // one line for people
  std::vector<HubSource> sources;         // the first is the model itself; empty: no public source
  std::vector<std::string> companions;    // ids pulled along
  std::optional<int64_t> download_bytes;  // estimate
  std::string license;                    // of the weights, as the publisher names it
  std::vector<UsageTerms> terms;          // not empty: restricted, pulled after acceptance only
  bool needs_token = false;               // the repository is gated for its readers
  int min_memory_gb = 0;  // of the whole machine, bytes / 2^30 rounded down; 0: unknown
  int recommended_memory_gb = 0;
  bool setup = false;   // offered at the first start
  bool hidden = false;  // listed only when asked for or installed

  std::string tier, variant, precision;
  std::optional<CatalogQuantization> quantization;
  std::optional<int> default_steps;
  std::optional<double> default_cfg;
  std::optional<double> default_sigma_shift;
  std::vector<std::string> supports;  // "txt2img", ...

  bool restricted() const { return !terms.empty(); }
};

const std::vector<CatalogModel>& catalog_models();

// Whether a machine of `memory_bytes` counts as one of `gb` GiB: from 15/16 of them on, for
// firmware and kernel keep a part of what is built in.
bool has_memory_gb(int64_t memory_bytes, int gb);

// Names and pages of the licences that restrict `model`, each once: "A, B". Empty when none does,
// or when no page is known.
std::string license_names(const CatalogModel& model);
std::string license_pages(const CatalogModel& model);

// By id or by the upstream repository of its first source; trimmed, case does not matter. nullptr
// when there is none.
const CatalogModel* find_catalog_model(std::string_view id_or_repository);

}  // namespace mere
