// Golden cases and self checks of the Klein stages (docs/validation.md).
#pragma once

#include <string>
#include <string_view>

#include "families/image_family.h"

namespace mere::klein {

std::string case_kind(const fs::path& file);
CaseCheck run_case(const GoldenCase& golden, Progress& progress);
CaseCheck self_check(const ModelRoot& root, std::string_view test, Progress& progress);

}  // namespace mere::klein
