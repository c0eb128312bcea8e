// The FLUX.2 autoencoder: pictures to 2x2-packed, batch-normalised latents and back.
// Source: diffusers AutoencoderKLFlux2. Names are those of the checkpoint.
//
// Easy to get wrong: encoding takes the mean of the posterior; packed channel order is
// c * 4 + dy * 2 + dx; latents are normalised by bn.running_mean/var with batch_norm_eps, and there
// is no scaling or shift factor; downsampling pads right and bottom by one before a stride-2
// convolution; group norm eps is 1e-6.
#pragma once

#include <vector>

#include "core/progress.h"
#include "nn/decode_plan.h"
#include "nn/layers.h"

namespace mere {

struct AutoencoderKlFlux2Config {
  int64_t in_channels = 3;
  int64_t out_channels = 3;
  int64_t latent_channels = 0;
  std::vector<int64_t> block_out_channels;
  std::vector<int64_t> decoder_block_out_channels;  // the same unless the config says otherwise
  int64_t layers_per_block = 0;
  int64_t norm_num_groups = 0;
  bool mid_block_add_attention = true;
  bool use_quant_conv = true;
  bool use_post_quant_conv = true;
  double batch_norm_eps = 1e-4;

  static AutoencoderKlFlux2Config read(const fs::path& config_json);
  // Pixels per latent, 2^(blocks - 1).
  int64_t downsampling() const { return int64_t{1} << (block_out_channels.size() - 1); }
  int64_t packed_channels() const { return latent_channels * 4; }
};

// Maps mflux names (attentions.0.to_out) to the checkpoint's (attentions.0.to_out.0).
std::string autoencoder_kl_flux2_checkpoint_name(const std::string& stored_name);

class AutoencoderKlFlux2 {
 public:
  // Convolutions may be stored [out, in, kh, kw] or [out, kh, kw, in] (mflux); told by their
  // shapes. Either half may be left out.
  AutoencoderKlFlux2(const AutoencoderKlFlux2Config& config, const Weights& weights,
                     bool with_encoder, bool with_decoder);
  ~AutoencoderKlFlux2();

  // image [B, H, W, 3] in [-1, 1] -> posterior mean [B, h, w, C]. Any size; halves round down.
  Array encode_mean(const Array& image, Taps* taps = nullptr) const;
  // latent [B, h, w, C] -> [B, 8 h, 8 w, 3], about [-1, 1], unclamped.
  Array decode(const Array& latent, Taps* taps = nullptr) const;
  // The same as `plan` says, for a picture of the size it was made for. Tiles give what the whole
  // picture gives, up to the rounding of float32. Evaluated; reports kDecoding for every tile.
  Array decode(const Array& latent, const DecodePlan& plan, Progress& progress) const;

  // [B, h, w, C] -> [B, h/2, w/2, 4 C]; h and w even.
  static Array patchify(const Array& latent);
  static Array unpatchify(const Array& packed);
  // Per packed channel: (x - mean) / sqrt(var + eps), and back. x [B, h, w, 4 C] or [B, L, 4 C].
  Array normalize(const Array& packed) const;
  Array denormalize(const Array& packed) const;

  const AutoencoderKlFlux2Config& config() const { return config_; }
  // How to decode a picture of this size within a limit of memory.
  static DecodePlan plan(const AutoencoderKlFlux2Config& config, int64_t width, int64_t height,
                         int64_t limit_bytes);

 private:
  struct Impl;
  AutoencoderKlFlux2Config config_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mere
