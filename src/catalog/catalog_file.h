// Reading a catalog file: catalog/catalog.json at the top of the source tree (its schema is beside
// it), or the file that MERERUN_CATALOG names, which mirrors and tests use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "catalog/catalog.h"

namespace mere {

// An adapter (LoRA weights) that is published by itself.
struct CatalogAdapter {
  std::string id;
  std::string version;  // folder below the id; "1" where the catalog does not say
  std::string base;     // id of the model that it is for; empty when unknown
  std::string url;      // https
  int64_t bytes = 0;    // exact size; 0: unknown
  std::string sha256;   // empty: unknown
  std::string license;  // as the publisher names it
  bool needs_acceptance = false;

  // False: nothing that could be fetched and checked.
  bool has_source() const { return !url.empty() && bytes > 0 && !sha256.empty(); }
};

struct Catalog {
  std::vector<CatalogModel> models;
  std::vector<CatalogAdapter> adapters;
};

// Reads and checks a whole catalog: unknown keys, ids that appear twice, companions that are not
// there, paths and URLs that are not legal are IoError naming `source` and the entry.
Catalog parse_catalog(std::string_view json, const std::string& source);

// The catalog in use, read once. IoError when the file of MERERUN_CATALOG is damaged.
const Catalog& catalog();

}  // namespace mere
