#include "engine/families.h"

#include "families/klein/klein.h"

namespace mere {
namespace {

const std::vector<const ImageFamily*>& table() {
  static const std::vector<const ImageFamily*> families = {
      &klein::family(),
  };
  return families;
}

}  // namespace

const ImageFamily* find_image_family(std::string_view name) {
  for (const ImageFamily* family : table()) {
    if (family->name() == name) return family;
  }
  return nullptr;
}

std::vector<std::string> image_family_names() {
  std::vector<std::string> names;
  for (const ImageFamily* family : table()) names.emplace_back(family->name());
  return names;
}

}  // namespace mere
