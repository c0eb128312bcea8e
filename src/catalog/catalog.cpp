#include "catalog/catalog.h"

#include <cstdlib>

#include "catalog/catalog_file.h"
#include "catalog/names.h"
#include "core/json.h"

namespace mere {

// The bytes of catalog/catalog.json; made by cmake/embed.cmake.
std::string_view embedded_catalog();

namespace {

constexpr size_t kMaxCatalogBytes = size_t{8} << 20;

Catalog read_catalog() {
  const char* path = std::getenv("MERERUN_CATALOG");
  if (path != nullptr && *path != '\0') {
    return parse_catalog(read_file(path, kMaxCatalogBytes), path);
  }
  return parse_catalog(embedded_catalog(), "catalog.json");
}

std::string joined_terms(const CatalogModel& model, std::string UsageTerms::*member) {
  std::string joined;
  for (const UsageTerms& terms : model.terms) {
    const std::string& text = terms.*member;
    if (joined.find(text) == std::string::npos) joined += (joined.empty() ? "" : ", ") + text;
  }
  return joined;
}

}  // namespace

const Catalog& catalog() {
  static const Catalog read = read_catalog();
  return read;
}

const std::vector<CatalogModel>& catalog_models() { return catalog().models; }

bool has_memory_gb(int64_t memory_bytes, int gb) {
  return memory_bytes >= (int64_t{gb} << 30) / 16 * 15;
}

std::string license_names(const CatalogModel& model) {
  return joined_terms(model, &UsageTerms::license);
}

std::string license_pages(const CatalogModel& model) {
  return joined_terms(model, &UsageTerms::license_url);
}

const CatalogModel* find_catalog_model(std::string_view id_or_repository) {
  const std::string wanted = lower(trimmed(id_or_repository));
  if (wanted.empty()) return nullptr;
  for (const CatalogModel& model : catalog_models()) {
    if (model.id == wanted) return &model;
  }
  for (const CatalogModel& model : catalog_models()) {
    if (!model.sources.empty() && lower(model.sources.front().repository) == wanted) return &model;
  }
  return nullptr;
}

}  // namespace mere
