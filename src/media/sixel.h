// The sixel graphics format: six rows of pixels to a character, colour by colour.
#pragma once

#include <string>

#include "media/image.h"

namespace mere::media {

// `image` as a complete sixel sequence: 216 fixed colours (six levels a channel) with ordered
// dithering, so that equal pictures give equal bytes and flat colours of the cube stay flat.
std::string encode_sixel(const Image& image);

}  // namespace mere::media
