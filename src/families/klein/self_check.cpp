#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "families/case_file.h"
#include "families/klein/cases.h"
#include "families/klein/pipeline.h"
#include "families/klein/references.h"

namespace mere::klein {
namespace {

constexpr int64_t kLength = 64;  // text tokens
constexpr LatentGrid kGrid{8, 8};

void same(CaseCheck& check, const std::string& name, const Array& a, const Array& b,
          double tolerance) {
  check.tensors.push_back(compare_tensors(name, case_tensor(a), case_tensor(b), tolerance));
}

void require(CaseCheck& check, const std::string& name, bool good, const std::string& problem) {
  check.tensors.push_back({.name = name, .passed = good, .problem = good ? "" : problem});
}

double difference(const Array& a, const Array& b) {
  const auto x = to_floats(a);
  const auto y = to_floats(b);
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max<double>(most, std::abs(x[i] - y[i]));
  return most;
}

// A smooth picture with an edge, which every sound autoencoder keeps roughly.
Image test_picture() {
  Image image(128, 128);
  for (int64_t y = 0; y < 128; ++y) {
    for (int64_t x = 0; x < 128; ++x) {
      const bool inside = (x - 64) * (x - 64) + (y - 64) * (y - 64) < 40 * 40;
      uint8_t* pixel = image.rgb.data() + (y * 128 + x) * 3;
      pixel[0] = inside ? 200 : 255;
      pixel[1] = static_cast<uint8_t>(inside ? 40 + y / 2 : 255);
      pixel[2] = inside ? 40 : 255;
    }
  }
  return image;
}

Array noise_tokens(Pipeline& pipeline, uint64_t seed) {
  return pack_noise(seed_noise(seed, pipeline.config().transformer, kGrid, 1));
}

void check_vae(Pipeline& pipeline, Progress& progress, CaseCheck& check) {
  progress.report(Stage::kDecoding, 0, 0);
  const Array given = image_to_array(test_picture());
  const Array latents = pipeline.encode_image(test_picture());
  const Array image = pipeline.decode(latents, kGrid);
  same(check, "decode twice", image, pipeline.decode(latents, kGrid), 0);
  double squares = 0;
  const auto a = to_floats(given);
  const auto b = to_floats(image);
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]) / 4;
  const double psnr = -10 * std::log10(squares / static_cast<double>(a.size()));
  require(check, "round trip", psnr > 15,
          "a picture comes back at " + std::to_string(psnr) + " dB");
  const Array twice = pipeline.vae().denormalize(pipeline.vae().normalize(latents));
  same(check, "normalise and back", twice, latents, kCaseTolerance);
}

void check_encoder(Pipeline& pipeline, Progress& progress, CaseCheck& check) {
  const auto encode = [&](const std::vector<std::string>& prompts, int64_t length) {
    return pipeline.encode_prompts(prompts, length, progress);
  };
  const PromptEmbedding one = encode({"a red apple"}, kLength);
  same(check, "encode twice", one.embeds, encode({"a red apple"}, kLength).embeds, 0);
  const auto head = [&](const Array& x) {
    return mx::slice(x, {0, 0, 0}, {1, static_cast<int>(one.prompts.front().valid), x.shape(2)});
  };
  same(check, "padding does not matter", head(encode({"a red apple"}, 2 * kLength).embeds),
       head(one.embeds), kCaseTolerance);
  const Array two =
      encode({"a red apple", "a much longer prompt about a blue boat"}, kLength).embeds;
  same(check, "batch equals single", mx::slice(two, {0, 0, 0}, {1, two.shape(1), two.shape(2)}),
       one.embeds, kCaseTolerance);
  require(check, "prompts differ",
          difference(encode({"a blue boat"}, kLength).embeds, one.embeds) > 1e-3,
          "two prompts give one embedding");
}

void check_transformer(Pipeline& pipeline, Progress& progress, CaseCheck& check) {
  const Array text = pipeline.encode_prompts({"a red apple"}, kLength, progress).embeds;
  PositionIds ids = text_position_ids(kLength);
  const PositionIds image = image_position_ids(kGrid.height, kGrid.width, 0);
  ids.insert(ids.end(), image.begin(), image.end());
  TransformerInput input{.hidden_states = noise_tokens(pipeline, 1),
                         .encoder_hidden_states = text,
                         .sigma = {0.75F},
                         .rotary = rotary_tables(pipeline.config().transformer, ids)};
  const Array v = pipeline.transformer()(input, &progress);
  same(check, "run twice", v, pipeline.transformer()(input, &progress), 0);
  input.hidden_states = mx::concatenate({input.hidden_states, noise_tokens(pipeline, 2)}, 0);
  input.encoder_hidden_states = mx::concatenate({text, text}, 0);
  const Array both = pipeline.transformer()(input, &progress);
  same(check, "batch equals single", mx::slice(both, {0, 0, 0}, {1, both.shape(1), both.shape(2)}),
       v, kCaseTolerance);
  input.sigma = {0.25F};
  require(check, "timesteps differ",
          difference(pipeline.transformer()(input, &progress), both) > 1e-4,
          "two timesteps give one velocity");
}

void check_pipeline(Pipeline& pipeline, Progress& progress, CaseCheck& check) {
  const auto draw = [&](const std::string& prompt, uint64_t seed) {
    const DenoiseRequest request{
        .latents = noise_tokens(pipeline, seed),
        .grid = kGrid,
        .prompt = pipeline.encode_prompts({prompt}, kLength, progress).embeds,
        .schedule = klein_schedule(kGrid.tokens(), 4, std::nullopt, {}),
    };
    return pipeline.decode(pipeline.denoise(request, progress), kGrid);
  };
  const Array apple = draw("a red apple", 1);
  same(check, "draw twice", apple, draw("a red apple", 1), 0);
  require(check, "seeds differ", difference(apple, draw("a red apple", 2)) > 1e-4,
          "two seeds give one picture");
  require(check, "prompts differ", difference(apple, draw("a blue boat", 1)) > 1e-2,
          "two prompts give one picture");
}

struct SelfCheck {
  std::string_view test;
  void (*run)(Pipeline& pipeline, Progress& progress, CaseCheck& check);
};
constexpr std::array<SelfCheck, 4> kChecks = {{{"vae", check_vae},
                                               {"encoder", check_encoder},
                                               {"transformer", check_transformer},
                                               {"pipeline", check_pipeline}}};

}  // namespace

CaseCheck self_check(const ModelRoot& root, std::string_view test, Progress& progress) {
  CaseCheck check{.file = root.manifest.id, .kind = std::string(test)};
  try {
    Pipeline pipeline(root);
    const auto* entry = std::ranges::find(kChecks, test, &SelfCheck::test);
    if (entry == kChecks.end()) throw UsageError{{"test_unknown", "--test", "no such test", ""}};
    entry->run(pipeline, progress, check);
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& e) {
    check.problem = e.what();
  }
  check.passed = check.problem.empty() && !check.tensors.empty() &&
                 std::ranges::all_of(check.tensors, &TensorCheck::passed);
  return check;
}

}  // namespace mere::klein
