// Reference pictures: how they are sized before the autoencoder sees them.
// Source: diffusers Flux2ImageProcessor.
#pragma once

#include "media/image.h"
#include "tensor/tensor.h"

namespace mere::klein {

// Above 1024 x 1024 pixels of area: LANCZOS to that area (each side rounded down), aspect kept.
// Then a centre crop to multiples of 16, never a resize. UsageError for a side under 64 pixels or
// an aspect above 8:1; `name` names the picture.
Image prepare_reference(const Image& image, const std::string& name);

// LANCZOS to cover width x height, then a centre crop to it: the start of a run with strength.
Image cover(const Image& image, int64_t width, int64_t height);

// [1, H, W, 3] float32 in [-1, 1].
Array image_to_array(const Image& image);

// x [1, H, W, 3] about [-1, 1] -> clamp(x / 2 + 0.5), rounded to 8 bits half to even.
Image array_to_image(const Array& x);

}  // namespace mere::klein
