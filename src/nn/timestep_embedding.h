// The sinusoidal embedding of diffusion timesteps.
// Source: diffusers get_timestep_embedding with flip_sin_to_cos and no frequency shift.
#pragma once

#include <span>

#include "tensor/tensor.h"

namespace mere {

// [cos | sin] of timestep * 10000^(-i / (channels / 2)). timesteps: B values; result [B, channels]
// float32. channels is even.
Array timestep_embedding(std::span<const float> timesteps, int64_t channels);

}  // namespace mere
