// The table of image families. Adding a family adds one line to families.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "families/image_family.h"

namespace mere {

// nullptr when no family has that name.
const ImageFamily* find_image_family(std::string_view name);
std::vector<std::string> image_family_names();

}  // namespace mere
