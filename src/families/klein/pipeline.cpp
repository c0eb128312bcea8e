#include "families/klein/pipeline.h"

#include <algorithm>

#include "core/error.h"
#include "families/klein/references.h"
#include "kernels/buffer_cache.h"
#include "kernels/concat.h"
#include "tensor/check.h"
#include "tensor/host_rng.h"

namespace mere::klein {
namespace {

// v = neg + g * (pos - neg)
Array guide(const Array& positive, const Array& negative, float guidance) {
  return negative + (positive - negative) * mx::array(guidance);
}

Array first_tokens(const Array& x, int64_t count) {
  return mx::slice(x, {0, 0, 0}, {x.shape(0), static_cast<int>(count), x.shape(2)});
}

Array repeat_batch(const Array& x, int batch) {
  return x.shape(0) == batch ? x : mx::repeat(x, batch / x.shape(0), 0);
}

}  // namespace

Pipeline::Pipeline(const ModelRoot& root) : root_(root), config_(Config::read(root)) {
  initialize_engine();
}

void Pipeline::load(Progress& progress) {
  progress.report(Stage::kLoadingEncoder, 0, 0);
  tokenizer();
  text_encoder(*std::ranges::max_element(config_.text_encoder_out_layers));
  progress.report(Stage::kLoadingTransformer, 0, 0);
  transformer();
  progress.report(Stage::kLoadingVae, 0, 0);
  vae();
}

const Tokenizer& Pipeline::tokenizer() {
  if (!tokenizer_) tokenizer_ = Tokenizer::open(root_.component("tokenizer"));
  return *tokenizer_;
}

const Qwen3& Pipeline::text_encoder(int64_t layers) {
  if (!text_encoder_ || layers > text_encoder_->layers()) {
    text_encoder_weights_ = Weights::open(root_.component("text_encoder"), qwen3_checkpoint_name);
    text_encoder_ = std::make_unique<Qwen3>(config_.text_encoder, *text_encoder_weights_, layers);
    text_encoder_weights_->check_used_values();
  }
  return *text_encoder_;
}

Transformer& Pipeline::transformer() {
  if (!transformer_) {
    transformer_weights_ =
        Weights::open(root_.component("transformer"), transformer_checkpoint_name);
    transformer_ = std::make_unique<Transformer>(config_.transformer, *transformer_weights_);
    transformer_weights_->check_all_used({"transformer_blocks.", "single_transformer_blocks."});
    transformer_weights_->check_used_values();
  }
  return *transformer_;
}

const AutoencoderKlFlux2& Pipeline::vae() {
  if (!vae_) {
    const Weights weights =
        Weights::open(root_.component("vae"), autoencoder_kl_flux2_checkpoint_name);
    // The decoder alone is published too; without an encoder there are no references.
    const bool with_encoder = weights.has("encoder.conv_in.weight");
    vae_ = std::make_unique<AutoencoderKlFlux2>(config_.vae, weights, with_encoder, true);
    weights.check_all_used({"encoder.", "decoder."});
    weights.check_used_values();
  }
  return *vae_;
}

PromptEmbedding Pipeline::encode_prompts(const std::vector<std::string>& prompts,
                                         int64_t max_length, Progress& progress,
                                         const std::vector<int64_t>& out_layers,
                                         const std::vector<int64_t>& extra_states) {
  const std::vector<int64_t>& layers =
      out_layers.empty() ? config_.text_encoder_out_layers : out_layers;
  PromptEmbedding out{mx::array(0.0F), {}, {}};
  std::vector<int32_t> ids;
  std::vector<int32_t> valid;
  for (const std::string& prompt : prompts) {
    out.prompts.push_back(tokenize_prompt(tokenizer(), prompt, max_length));
    const TokenizedPrompt& tokenized = out.prompts.back();
    for (const int32_t id : tokenized.ids) {
      if (id < 0 || id >= config_.text_encoder.vocab_size) {
        throw IoError{{"tokenizer_unsupported", "tokenizer",
                       root_.component("tokenizer").string() + ": token id " + std::to_string(id) +
                           " is beyond the text encoder's vocabulary",
                       ""}};
      }
    }
    ids.insert(ids.end(), tokenized.ids.begin(), tokenized.ids.end());
    valid.push_back(static_cast<int32_t>(tokenized.valid));
  }
  const int batch = static_cast<int>(prompts.size());
  std::vector<int64_t> states = layers;
  states.insert(states.end(), extra_states.begin(), extra_states.end());
  out.states = text_encoder(*std::ranges::max_element(states))
                   .hidden_states(array_from(ids, {batch, static_cast<int>(max_length)}),
                                  array_from(valid, {batch}), states, &progress);
  std::vector<Array> parts;
  for (const int64_t layer : layers) parts.push_back(out.states.at(layer));
  out.embeds = concat(parts, 2);
  check_finite(out.embeds, "the text encoder");
  clear_buffer_cache();
  text_encoder_weights_->release_pages();
  return out;
}

Array Pipeline::encode_image(const Image& image) {
  const Array mean = vae().encode_mean(image_to_array(image));
  const Array packed = vae().normalize(AutoencoderKlFlux2::patchify(mean));  // [1, h, w, 4 C]
  const Array latents =
      mx::reshape(packed, {1, packed.shape(1) * packed.shape(2), packed.shape(3)});
  check_finite(latents, "the image encoder");
  return latents;
}

ReferenceLatents Pipeline::encode_references(const std::vector<Image>& references,
                                             Progress& progress) {
  constexpr int64_t kFirstTime = 10;
  constexpr int64_t kTimeStep = 10;
  std::vector<Array> tokens;
  PositionIds ids;
  const auto count = static_cast<int64_t>(references.size());
  for (int64_t k = 0; k < count; ++k) {
    const Image& image = references[k];
    progress.report(Stage::kEncodingReferenceImages, k, count);
    tokens.push_back(encode_image(image));
    const PositionIds own =
        image_position_ids(image.height / 16, image.width / 16, kFirstTime + kTimeStep * k);
    ids.insert(ids.end(), own.begin(), own.end());
  }
  progress.report(Stage::kEncodingReferenceImages, count, count);
  return {mx::concatenate(tokens, 1), std::move(ids)};
}

Array Pipeline::denoise(const DenoiseRequest& request, Progress& progress) {
  const int batch = request.latents.shape(0);
  const int64_t image_tokens = request.grid.tokens();
  PositionIds positions = text_position_ids(request.prompt.shape(1));
  const PositionIds image_ids = image_position_ids(request.grid.height, request.grid.width, 0);
  positions.insert(positions.end(), image_ids.begin(), image_ids.end());
  if (request.references) {
    positions.insert(positions.end(), request.references->ids.begin(),
                     request.references->ids.end());
  }
  const RotaryTables rotary = rotary_tables(config_.transformer, positions);
  const auto predict = [&](const Array& latents, const Array& text, float sigma, Taps* taps) {
    const int rows = text.shape(0);
    Array hidden = repeat_batch(latents, rows);
    if (request.references) {
      hidden = concat({hidden, repeat_batch(request.references->tokens, rows)}, 1);
    }
    const Array v = transformer()({.hidden_states = hidden,
                                   .encoder_hidden_states = text,
                                   .sigma = {sigma},
                                   .guidance = {},
                                   .rotary = rotary},
                                  &progress);
    tap(taps, "transformer_out_step0", v);
    return first_tokens(v, image_tokens);
  };
  const auto velocity = [&](const Array& latents, float sigma, Taps* taps) {
    if (!request.negative_prompt) return predict(latents, request.prompt, sigma, taps);
    if (request.batched_guidance) {
      const Array text = mx::concatenate({request.prompt, *request.negative_prompt}, 0);
      const Array both = predict(mx::concatenate({latents, latents}, 0), text, sigma, nullptr);
      const auto halves = mx::split(both, 2, 0);
      return guide(halves[0], halves[1], request.guidance);
    }
    const Array positive = predict(latents, request.prompt, sigma, taps);
    return guide(positive, predict(latents, *request.negative_prompt, sigma, nullptr),
                 request.guidance);
  };

  const auto& sigmas = request.schedule.sigmas;
  const int steps = static_cast<int>(request.schedule.timesteps.size());
  const int total = steps - request.first_step;
  Array latents = request.latents;
  if (batch != request.prompt.shape(0)) {
    throw InternalError{{"batch_mismatch", "", "as many prompts as latents are needed", ""}};
  }
  for (int step = request.first_step; step < steps; ++step) {
    progress.report(Stage::kDenoising, step - request.first_step, total);
    Taps* taps = step == request.first_step ? request.taps : nullptr;
    const Array v = velocity(latents, sigmas[step], taps);
    latents = latents + v * mx::array(sigmas[step + 1] - sigmas[step]);
    check_finite(latents,
                 "denoising step " + std::to_string(step + 1) + " of " + std::to_string(steps));
    if (request.on_step) request.on_step(step, latents);
  }
  progress.report(Stage::kDenoising, total, total);
  clear_buffer_cache();  // the decoder's sizes are others
  transformer_weights_->release_pages();
  return latents;
}

Array Pipeline::decode(const Array& latents, LatentGrid grid) {
  SilentProgress silent;
  return decode(latents, grid, {}, silent);
}

Array Pipeline::decode(const Array& latents, LatentGrid grid, const DecodePlan& plan,
                       Progress& progress) {
  const Array packed = mx::reshape(latents, {latents.shape(0), static_cast<int>(grid.height),
                                             static_cast<int>(grid.width), latents.shape(2)});
  const Array image =
      vae().decode(AutoencoderKlFlux2::unpatchify(vae().denormalize(packed)), plan, progress);
  check_finite(image, "the image decoder");
  return image;
}

Array seed_noise(uint64_t seed, const TransformerConfig& config, LatentGrid grid, int batch) {
  const mx::Shape shape = {batch, static_cast<int>(config.in_channels),
                           static_cast<int>(grid.height), static_cast<int>(grid.width)};
  return array_from(HostRng(seed).normal(batch * config.in_channels * grid.tokens()), shape);
}

Array pack_noise(const Array& noise) {
  const Array last = mx::transpose(noise, {0, 2, 3, 1});  // [B, h, w, 4 C]
  return mx::contiguous(
      mx::reshape(last, {noise.shape(0), noise.shape(2) * noise.shape(3), noise.shape(1)}));
}

FlowMatchSchedule klein_schedule(int64_t image_tokens, int steps, std::optional<float> sigma_shift,
                                 const std::vector<float>& sigmas) {
  if (!sigmas.empty()) return flow_match_explicit(sigmas);
  if (sigma_shift) return flow_match_static(steps, *sigma_shift);
  return flow_match_dynamic(steps, flux2_empirical_mu(image_tokens, steps));
}

}  // namespace mere::klein
