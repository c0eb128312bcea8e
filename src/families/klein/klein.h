// FLUX.2 Klein: distilled (4 steps, no guidance) and base (50 steps, CFG). See NOTES.md.
#pragma once

#include "families/image_family.h"

namespace mere::klein {

const ImageFamily& family();

}  // namespace mere::klein
