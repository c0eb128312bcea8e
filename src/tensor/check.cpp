#include "tensor/check.h"

#include <cmath>

#include "core/error.h"

namespace mere {

void check_finite(const Array& a, const std::string& stage) {
  for (const float value : to_floats(a)) {
    if (std::isfinite(value)) continue;
    throw InternalError{{"not_finite", stage,
                         stage + " produced " + (std::isnan(value) ? "NaN" : "an infinite value") +
                             "; no picture was written",
                         "the weights or an adapter may be damaged"}};
  }
}

}  // namespace mere
