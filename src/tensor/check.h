// Checks of computed values after each stage of a model.
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace mere {

// Evaluates `a` and throws InternalError (code "not_finite") naming `stage` when a value is NaN or
// Inf: the result must never be written as a picture.
void check_finite(const Array& a, const std::string& stage);

}  // namespace mere
