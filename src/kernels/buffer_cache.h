// Memory of finished arrays, kept for the next ones.
//
// The system clears every page it hands out, and activations are hundreds of megabytes a layer:
// taking them anew for every operation costs as much as a tenth of the time of a picture.
#pragma once

#include <cstddef>
#include <mlx/mlx.h>

namespace mere {

// A buffer of at least `bytes` whose contents are undefined. It returns to the cache when the last
// array that uses it is gone.
mlx::core::allocator::Data cached_buffer(size_t bytes);

// Gives what is kept back to the system. For the end of a stage whose sizes do not come again.
void clear_buffer_cache();

}  // namespace mere
