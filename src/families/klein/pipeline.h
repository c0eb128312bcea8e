// The stages of Klein from prompt to pixels. Each stage is a function that golden cases run alone;
// klein.cpp strings them together for a request.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "families/klein/config.h"
#include "families/klein/prompt.h"
#include "families/klein/transformer.h"
#include "media/image.h"
#include "schedulers/flow_match_euler.h"

namespace mere::klein {

struct PromptEmbedding {
  Array embeds;  // [B, L, states * hidden], padding rows included
  std::vector<TokenizedPrompt> prompts;
  std::map<int64_t, Array> states;  // hidden states asked for, [B, L, hidden]
};

struct ReferenceLatents {
  Array tokens;  // [1, R, 4 C]
  PositionIds ids;
};

struct LatentGrid {
  int64_t height = 0;  // packed latents: pixels / 16
  int64_t width = 0;
  int64_t tokens() const { return height * width; }
};

struct DenoiseRequest {
  Array latents;  // [B, N, 4 C] at the first sigma that is used
  LatentGrid grid;
  Array prompt;                            // [B, L, width]
  std::optional<Array> negative_prompt{};  // with guidance: the same shape
  float guidance = 1.0F;
  bool batched_guidance = false;  // both passes in one transformer call
  FlowMatchSchedule schedule{};
  int first_step = 0;
  std::optional<ReferenceLatents> references{};
  // Called with the latents after each step.
  std::function<void(int step, const Array& latents)> on_step{};
  Taps* taps = nullptr;  // transformer_out_step0: the first call's output, references included
};

class Pipeline {
 public:
  // Reads configs; weights come with the first use of a part, or all at once with load().
  explicit Pipeline(const ModelRoot& root);

  const Config& config() const { return config_; }
  const ModelRoot& root() const { return root_; }
  void load(Progress& progress);

  const Tokenizer& tokenizer();
  Transformer& transformer();
  const AutoencoderKlFlux2& vae();

  // `extra_states` are kept beside those that make the embedding.
  PromptEmbedding encode_prompts(const std::vector<std::string>& prompts, int64_t max_length,
                                 Progress& progress, const std::vector<int64_t>& out_layers = {},
                                 const std::vector<int64_t>& extra_states = {});
  // References already prepared (references.h), in order.
  ReferenceLatents encode_references(const std::vector<Image>& references, Progress& progress);
  // [1, h * w, 4 C] normalised latents of a picture whose sides are multiples of 16.
  Array encode_image(const Image& image);
  Array denoise(const DenoiseRequest& request, Progress& progress);
  // [B, N, 4 C] -> [B, H, W, 3] about [-1, 1].
  Array decode(const Array& latents, LatentGrid grid);
  // The same as a plan of AutoencoderKlFlux2 says; reports its progress.
  Array decode(const Array& latents, LatentGrid grid, const DecodePlan& plan, Progress& progress);

 private:
  // With at least its first `layers` layers: those behind the last state asked for are not read.
  const Qwen3& text_encoder(int64_t layers);

  ModelRoot root_;
  Config config_;
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<Qwen3> text_encoder_;
  std::unique_ptr<Transformer> transformer_;
  // Kept to let go of their pages when their stage is over.
  std::optional<Weights> text_encoder_weights_, transformer_weights_;
  std::unique_ptr<AutoencoderKlFlux2> vae_;
};

// The host generator's noise for a seed, [batch, 4 C, h, w], drawn in that order.
Array seed_noise(uint64_t seed, const TransformerConfig& config, LatentGrid grid, int batch);

// noise [B, 4 C, h, w] as the generator gives it -> packed tokens [B, h * w, 4 C].
Array pack_noise(const Array& noise);

// Klein's schedule for a grid: the empirical mu, or the shift or sigmas given instead.
FlowMatchSchedule klein_schedule(int64_t image_tokens, int steps, std::optional<float> sigma_shift,
                                 const std::vector<float>& sigmas);

}  // namespace mere::klein
