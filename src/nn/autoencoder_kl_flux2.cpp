#include "nn/autoencoder_kl_flux2.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "core/error.h"
#include "core/json.h"
#include "kernels/attention.h"
#include "kernels/buffer_cache.h"
#include "kernels/conv2d.h"
#include "kernels/norm.h"
#include "nn/strips.h"

namespace mere {
namespace {

constexpr float kGroupNormEps = 1e-6F;
constexpr int64_t kMaxChannels = 1 << 16;

void refuse(const std::string& source, const std::string& what) {
  throw IoError{{"config_unsupported", source, source + ": " + what, ""}};
}

enum class ConvLayout { kChannelsFirst, kChannelsLast };

// Reads the parts of one checkpoint; knows its convolution layout.
class Reader {
 public:
  Reader(const AutoencoderKlFlux2Config& config, const Weights& weights)
      : config_(config), weights_(weights), layout_(find_layout()) {}

  const Weights& weights() const { return weights_; }
  int groups() const { return static_cast<int>(config_.norm_num_groups); }

  // [out, kh, kw, in] view of the stored weight.
  Array conv_weight(const std::string& name, int64_t out, int64_t in, int64_t kernel) const {
    if (layout_ == ConvLayout::kChannelsLast) {
      return weights_.get(name + ".weight", {out, kernel, kernel, in});
    }
    return mx::transpose(weights_.get(name + ".weight", {out, in, kernel, kernel}), {0, 2, 3, 1});
  }

 private:
  // A latent has more channels than a kernel has rows, which tells the two layouts apart.
  ConvLayout find_layout() const {
    for (const char* name : {"decoder.conv_in.weight", "encoder.conv_out.weight"}) {
      const auto shape = weights_.shape(name);
      if (!shape || shape->size() != 4 || (*shape)[1] == (*shape)[3]) continue;
      return (*shape)[2] == (*shape)[3] ? ConvLayout::kChannelsFirst : ConvLayout::kChannelsLast;
    }
    return ConvLayout::kChannelsFirst;
  }

  const AutoencoderKlFlux2Config& config_;
  const Weights& weights_;
  ConvLayout layout_;
};

class Conv {
 public:
  Conv(const Reader& reader, const std::string& name, int64_t out, int64_t in, int64_t kernel)
      : weight_(reader.conv_weight(name, out, in, kernel)),
        bias_(reader.weights().get_f32(name + ".bias", {out})) {}

  Array operator()(const Array& x, const ConvFusion& fusion = {}) const {
    const int pad = weight_.shape(1) / 2;
    return conv2d(x, weight_, bias_, 1, {pad, pad, pad, pad}, fusion);
  }
  int out_channels() const { return weight_.shape(0); }
  // Stride 2 with one row and column of zeros at the right and bottom.
  Array downsample(const Array& x) const {
    return conv2d(x, weight_, bias_, 2, {.top = 0, .bottom = 1, .left = 0, .right = 1});
  }

 private:
  Array weight_;
  Array bias_;
};

class GroupNorm {
 public:
  GroupNorm(const Reader& reader, const std::string& name, int64_t channels)
      : groups_(reader.groups()),
        weight_(reader.weights().get_f32(name + ".weight", {channels})),
        bias_(reader.weights().get_f32(name + ".bias", {channels})) {}

  Array operator()(const Array& x) const {
    return group_norm(x, weight_, bias_, groups_, kGroupNormEps, false);
  }
  // For a convolution that reads silu(norm(x)); moments as in ConvNorm.
  ConvNorm before_conv(const std::optional<Array>& moments = std::nullopt) const {
    return {weight_, bias_, groups_, kGroupNormEps, moments};
  }
  int groups() const { return groups_; }

 private:
  int groups_;
  Array weight_;
  Array bias_;
};

class ResnetBlock {
 public:
  ResnetBlock(const Reader& reader, const std::string& name, int64_t out, int64_t in)
      : norm1_(reader, name + ".norm1", in),
        conv1_(reader, name + ".conv1", out, in, 3),
        norm2_(reader, name + ".norm2", out),
        conv2_(reader, name + ".conv2", out, out, 3) {
    if (in != out) conv_shortcut_.emplace(reader, name + ".conv_shortcut", out, in, 1);
  }

  Array operator()(const Array& x) const { return second_half(first_half(x), x); }

  // The two convolutions one by one, with moments of the norms as in ConvNorm.
  Array first_half(const Array& x, const std::optional<Array>& moments = std::nullopt) const {
    return conv1_(x, {.norm = norm1_.before_conv(moments)});
  }
  Array second_half(const Array& h, const Array& x,
                    const std::optional<Array>& moments = std::nullopt) const {
    return conv2_(h, {.norm = norm2_.before_conv(moments),
                      .residual = conv_shortcut_ ? (*conv_shortcut_)(x) : x});
  }
  int groups() const { return norm1_.groups(); }
  int out_channels() const { return conv2_.out_channels(); }

 private:
  GroupNorm norm1_;
  Conv conv1_;
  GroupNorm norm2_;
  Conv conv2_;
  std::optional<Conv> conv_shortcut_;
};

// One head over all pixels.
class AttentionBlock {
 public:
  AttentionBlock(const Reader& reader, const std::string& name, int64_t channels)
      : group_norm_(reader, name + ".group_norm", channels),
        to_q_(reader.weights(), name + ".to_q", channels, channels, true),
        to_k_(reader.weights(), name + ".to_k", channels, channels, true),
        to_v_(reader.weights(), name + ".to_v", channels, channels, true),
        to_out_(reader.weights(), name + ".to_out.0", channels, channels, true) {}

  Array operator()(const Array& x) const {
    const int pixels = x.shape(1) * x.shape(2);
    const auto flat = [&](const Array& y) {
      return mx::reshape(y, {x.shape(0), 1, pixels, x.shape(3)});
    };
    const Array h = group_norm_(x);
    const float scale = 1.0F / std::sqrt(static_cast<float>(x.shape(3)));
    const Array y = attention(flat(to_q_(h)), flat(to_k_(h)), flat(to_v_(h)), scale);
    return x + to_out_(mx::reshape(y, x.shape()));
  }

 private:
  GroupNorm group_norm_;
  Linear to_q_, to_k_, to_v_, to_out_;
};

class MidBlock {
 public:
  MidBlock(const Reader& reader, const std::string& name, int64_t channels, bool with_attention)
      : first_(reader, name + ".resnets.0", channels, channels),
        second_(reader, name + ".resnets.1", channels, channels) {
    if (with_attention) attention_.emplace(reader, name + ".attentions.0", channels);
  }

  Array operator()(const Array& x) const {
    const Array h = first_(x);
    return second_(attention_ ? (*attention_)(h) : h);
  }

 private:
  ResnetBlock first_;
  std::optional<AttentionBlock> attention_;
  ResnetBlock second_;
};

// The resnets of one resolution and, except at the last one, the change to the next.
struct Level {
  std::vector<ResnetBlock> resnets;
  std::optional<Conv> resample;
};

Level read_level(const Reader& reader, const std::string& name, int64_t out, int64_t in,
                 int64_t resnets, const std::string& resample) {
  Level level;
  for (int64_t i = 0; i < resnets; ++i) {
    level.resnets.emplace_back(reader, name + ".resnets." + std::to_string(i), out,
                               i == 0 ? in : out);
  }
  if (!resample.empty())
    level.resample.emplace(reader, name + "." + resample + ".0.conv", out, out, 3);
  return level;
}

class Encoder {
 public:
  Encoder(const AutoencoderKlFlux2Config& c, const Reader& reader)
      : conv_in_(reader, "encoder.conv_in", c.block_out_channels.front(), c.in_channels, 3),
        mid_block_(reader, "encoder.mid_block", c.block_out_channels.back(),
                   c.mid_block_add_attention),
        conv_norm_out_(reader, "encoder.conv_norm_out", c.block_out_channels.back()),
        conv_out_(reader, "encoder.conv_out", 2 * c.latent_channels, c.block_out_channels.back(),
                  3) {
    int64_t in = c.block_out_channels.front();
    for (size_t i = 0; i < c.block_out_channels.size(); ++i) {
      const bool last = i + 1 == c.block_out_channels.size();
      down_blocks_.push_back(read_level(reader, "encoder.down_blocks." + std::to_string(i),
                                        c.block_out_channels[i], in, c.layers_per_block,
                                        last ? "" : "downsamplers"));
      in = c.block_out_channels[i];
    }
    if (c.use_quant_conv) {
      quant_conv_.emplace(reader, "quant_conv", 2 * c.latent_channels, 2 * c.latent_channels, 1);
    }
  }

  // [B, H, W, 3] -> moments [B, h, w, 2 C]
  Array operator()(const Array& image, Taps* taps) const {
    Array x = conv_in_(image);
    tap(taps, "enc_conv_in", x);
    for (size_t i = 0; i < down_blocks_.size(); ++i) {
      for (const ResnetBlock& resnet : down_blocks_[i].resnets) x = resnet(x);
      if (down_blocks_[i].resample) x = down_blocks_[i].resample->downsample(x);
      tap(taps, "enc_down" + std::to_string(i), x);
      mx::eval(x);
    }
    x = mid_block_(x);
    tap(taps, "enc_mid", x);
    x = conv_out_(x, {.norm = conv_norm_out_.before_conv()});
    tap(taps, "enc_out", x);
    if (quant_conv_) x = (*quant_conv_)(x);
    tap(taps, "moments", x);
    return x;
  }

 private:
  Conv conv_in_;
  std::vector<Level> down_blocks_;
  MidBlock mid_block_;
  GroupNorm conv_norm_out_;
  Conv conv_out_;
  std::optional<Conv> quant_conv_;
};

// Reports every tile of every pass; what runs whole is one step.
class TileSteps {
 public:
  TileSteps(int64_t total, Progress* progress) : total_(total), progress_(progress) {}
  void next() {
    if (progress_ != nullptr) progress_->report(Stage::kDecoding, step_++, total_);
  }
  // Computes what a step gave, so that it can be cancelled before the next one.
  void computed(const Array& x) const {
    mx::eval(x);
    if (progress_ != nullptr) progress_->check_cancelled();
  }
  // Computes the picture.
  Array finish(Array picture) {
    if (progress_ == nullptr) return picture;
    mx::eval(picture);
    progress_->report(Stage::kDecoding, total_, total_);
    return picture;
  }

 private:
  int64_t step_ = 0;
  int64_t total_;
  Progress* progress_;
};

class Decoder {
 public:
  Decoder(const AutoencoderKlFlux2Config& c, const Reader& reader)
      : conv_in_(reader, "decoder.conv_in", c.decoder_block_out_channels.back(), c.latent_channels,
                 3),
        mid_block_(reader, "decoder.mid_block", c.decoder_block_out_channels.back(),
                   c.mid_block_add_attention),
        conv_norm_out_(reader, "decoder.conv_norm_out", c.decoder_block_out_channels.front()),
        conv_out_(reader, "decoder.conv_out", c.out_channels, c.decoder_block_out_channels.front(),
                  3) {
    if (c.use_post_quant_conv) {
      post_quant_conv_.emplace(reader, "post_quant_conv", c.latent_channels, c.latent_channels, 1);
    }
    const std::vector<int64_t> widths(c.decoder_block_out_channels.rbegin(),
                                      c.decoder_block_out_channels.rend());
    int64_t in = widths.front();
    for (size_t i = 0; i < widths.size(); ++i) {
      const bool last = i + 1 == widths.size();
      up_blocks_.push_back(read_level(reader, "decoder.up_blocks." + std::to_string(i), widths[i],
                                      in, c.layers_per_block + 1, last ? "" : "upsamplers"));
      in = widths[i];
    }
  }

  // [B, h, w, C] -> [B, 8 h, 8 w, 3]
  Array operator()(const Array& latent, const DecodePlan& plan, Taps* taps,
                   Progress* progress) const {
    TileSteps steps(step_count(plan, latent.shape(1)), progress);
    steps.next();
    Array x = conv_in_(post_quant_conv_ ? (*post_quant_conv_)(latent) : latent);
    tap(taps, "dec_conv_in", x);
    x = mid_block_(x);
    tap(taps, "dec_mid", x);
    steps.computed(x);
    const size_t whole = up_blocks_.size() - plan.tile_rows.size();
    for (size_t i = 0; i < whole; ++i) {
      for (const ResnetBlock& resnet : up_blocks_[i].resnets) {
        x = resnet(x);
        steps.computed(x);
      }
      if (i + 1 < whole) x = (*up_blocks_[i].resample)(x, {.upsample = true});
      tap(taps, "dec_up" + std::to_string(i), x);
      steps.computed(x);
    }
    if (plan.tile_rows.empty()) {
      return steps.finish(conv_out_(x, {.norm = conv_norm_out_.before_conv()}));
    }
    for (size_t i = whole; i < up_blocks_.size(); ++i) {
      x = level(i, std::move(x), static_cast<int>(plan.tile_rows[i - whole]), steps);
    }
    return steps.finish(x);
  }

 private:
  // Rows above and below a strip: two convolutions of a resnet, or, as rows of the level before,
  // these and the one that enlarges.
  static constexpr int kHalo = 2;
  static constexpr int kPassesOfResnet = 3;
  static constexpr int kPassesOfOutput = 2;

  using Source = std::function<StripRows(const Strip& strip)>;

  int64_t step_count(const DecodePlan& plan, int64_t latent_height) const {
    int64_t total = 1;
    const size_t whole = up_blocks_.size() - plan.tile_rows.size();
    for (size_t i = whole; i < up_blocks_.size(); ++i) {
      const int64_t rows = plan.tile_rows[i - whole];
      const int64_t strips = ((latent_height << i) + rows - 1) / rows;
      const auto resnets = static_cast<int64_t>(up_blocks_[i].resnets.size());
      const int64_t passes =
          kPassesOfResnet * resnets + (i + 1 == up_blocks_.size() ? kPassesOfOutput : 0);
      total += strips == 1 ? 1 : strips * passes;
    }
    return total;
  }

  // From what level i - 1 gave before it was enlarged to what level i gives; the last one gives the
  // picture.
  Array level(size_t i, Array input, int rows, TileSteps& steps) const {
    const Conv& enlarge = *up_blocks_[i - 1].resample;
    const bool last = i + 1 == up_blocks_.size();
    const std::vector<Strip> strips = strips_of(2 * input.shape(1), rows);
    if (strips.size() == 1) {
      steps.next();
      Array x = enlarge(input, {.upsample = true});
      for (const ResnetBlock& resnet : up_blocks_[i].resnets) x = resnet(x);
      if (last) x = conv_out_(x, {.norm = conv_norm_out_.before_conv()});
      mx::eval(x);
      return x;
    }
    const std::vector<ResnetBlock>& resnets = up_blocks_[i].resnets;
    clear_buffer_cache();
    StripPicture picture(
        {input.shape(0), 2 * input.shape(1), 2 * input.shape(2), resnets.front().out_channels()});
    Source source = [&](const Strip& strip) -> StripRows {
      const int first = std::max(0, strip.begin / 2 - kHalo);
      const int end = std::min(input.shape(1), strip.end / 2 + kHalo);
      return {enlarge(rows_of(input, first, end), {.upsample = true}), 2 * first};
    };
    for (const ResnetBlock& resnet : resnets) {
      resnet_in_strips(resnet, source, strips, picture, steps);
      source = [&](const Strip& strip) { return picture.read(strip, kHalo); };
      input = Array(0.0F);   // only the first one reads it
      clear_buffer_cache();  // buffers of tiles would pile up beside it
    }
    if (!last) return picture.array();
    const Array moments = moments_of(source, strips, conv_norm_out_.groups(), steps);
    StripPicture out({picture.array().shape(0), picture.array().shape(1), picture.array().shape(2),
                      conv_out_.out_channels()});
    for (const Strip& strip : strips) {
      steps.next();
      const StripRows x = source(strip);
      out.write({conv_out_(x.x, {.norm = conv_norm_out_.before_conv(moments)}), x.first}, strip);
    }
    out.finish();
    return out.array();
  }

  static Array moments_of(const Source& source, const std::vector<Strip>& strips, int groups,
                          TileSteps& steps) {
    PooledMoments moments;
    for (const Strip& strip : strips) {
      steps.next();
      moments.add(source(strip), strip, groups);
    }
    return moments.value();
  }

  // A norm needs the moments of the whole picture before the convolution behind it can run, so
  // everything before a norm is computed once for its moments and then again.
  static void resnet_in_strips(const ResnetBlock& resnet, const Source& source,
                               const std::vector<Strip>& strips, StripPicture& picture,
                               TileSteps& steps) {
    const Array before_first = moments_of(source, strips, resnet.groups(), steps);
    const auto middle = [&](const Strip& strip) -> StripRows {
      const StripRows x = source(strip);
      return {resnet.first_half(x.x, before_first), x.first};
    };
    const Array before_second = moments_of(middle, strips, resnet.groups(), steps);
    for (const Strip& strip : strips) {
      steps.next();
      const StripRows x = source(strip);
      const Array h = resnet.first_half(x.x, before_first);
      picture.write({resnet.second_half(h, x.x, before_second), x.first}, strip);
    }
    picture.finish();
  }

  std::optional<Conv> post_quant_conv_;
  Conv conv_in_;
  MidBlock mid_block_;
  std::vector<Level> up_blocks_;
  GroupNorm conv_norm_out_;
  Conv conv_out_;
};

}  // namespace

struct AutoencoderKlFlux2::Impl {
  std::optional<Encoder> encoder;
  std::optional<Decoder> decoder;
  Array mean;       // [4 C]
  Array deviation;  // [4 C], sqrt(var + eps)
};

AutoencoderKlFlux2Config AutoencoderKlFlux2Config::read(const fs::path& config_json) {
  const std::string source = config_json.string();
  const Json json = parse_json_file(config_json);
  AutoencoderKlFlux2Config c;
  c.in_channels = json_int_or(json, "in_channels", 3, 3, 3, source);
  c.out_channels = json_int_or(json, "out_channels", 3, 3, 3, source);
  c.latent_channels = json_int_or(json, "latent_channels", 1, kMaxChannels, 32, source);
  const auto widths = json_ints(json, "block_out_channels", 1, kMaxChannels, source);
  c.block_out_channels = widths.value_or(std::vector<int64_t>{128, 256, 512, 512});
  c.decoder_block_out_channels =
      json_ints(json, "decoder_block_out_channels", 1, kMaxChannels, source)
          .value_or(c.block_out_channels);
  c.layers_per_block = json_int_or(json, "layers_per_block", 1, 64, 2, source);
  c.norm_num_groups = json_int_or(json, "norm_num_groups", 1, kMaxChannels, 32, source);
  c.mid_block_add_attention = json_bool_or(json, "mid_block_add_attention", true, source);
  c.use_quant_conv = json_bool_or(json, "use_quant_conv", true, source);
  c.use_post_quant_conv = json_bool_or(json, "use_post_quant_conv", true, source);
  c.batch_norm_eps = json_number_or(json, "batch_norm_eps", 0, 1, 1e-4, source);
  if (json_string_or(json, "act_fn", "silu", source) != "silu")
    refuse(source, "act_fn is not silu");
  if (c.block_out_channels.empty() || c.block_out_channels.size() > 8 ||
      c.decoder_block_out_channels.size() != c.block_out_channels.size()) {
    refuse(source, "block_out_channels has an unsupported number of levels");
  }
  for (const auto* list : {&c.block_out_channels, &c.decoder_block_out_channels}) {
    for (const int64_t width : *list) {
      if (width % c.norm_num_groups != 0) {
        refuse(source, "block_out_channels are not multiples of norm_num_groups");
      }
    }
  }
  const auto patch = json_ints(json, "patch_size", 1, 64, source);
  if (patch && *patch != std::vector<int64_t>{2, 2}) refuse(source, "patch_size is not [2, 2]");
  return c;
}

std::string autoencoder_kl_flux2_checkpoint_name(const std::string& stored_name) {
  static constexpr std::string_view kShort = ".attentions.0.to_out.";
  const size_t at = stored_name.find(kShort);
  if (at == std::string::npos) return stored_name;
  const std::string rest = stored_name.substr(at + kShort.size());
  if (rest.starts_with("0.")) return stored_name;
  return stored_name.substr(0, at + kShort.size()) + "0." + rest;
}

AutoencoderKlFlux2::AutoencoderKlFlux2(const AutoencoderKlFlux2Config& config,
                                       const Weights& weights, bool with_encoder, bool with_decoder)
    : config_(config) {
  const Reader reader(config_, weights);
  const int64_t packed = config.packed_channels();
  const Array variance = weights.get_f32("bn.running_var", {packed});
  impl_ = std::make_unique<Impl>(
      Impl{std::nullopt, std::nullopt, weights.get_f32("bn.running_mean", {packed}),
           mx::sqrt(variance + mx::array(static_cast<float>(config.batch_norm_eps)))});
  if (with_encoder) impl_->encoder.emplace(config_, reader);
  if (with_decoder) impl_->decoder.emplace(config_, reader);
}

AutoencoderKlFlux2::~AutoencoderKlFlux2() = default;

Array AutoencoderKlFlux2::encode_mean(const Array& image, Taps* taps) const {
  const Array moments = impl_->encoder.value()(image, taps);
  const Array mean = mx::split(moments, 2, 3)[0];
  tap(taps, "mean", mean);
  return mean;
}

Array AutoencoderKlFlux2::decode(const Array& latent, Taps* taps) const {
  return impl_->decoder.value()(latent, {}, taps, nullptr);
}

Array AutoencoderKlFlux2::decode(const Array& latent, const DecodePlan& plan,
                                 Progress& progress) const {
  return impl_->decoder.value()(latent, plan, nullptr, &progress);
}

Array AutoencoderKlFlux2::patchify(const Array& latent) {
  const int b = latent.shape(0);
  const int h = latent.shape(1) / 2;
  const int w = latent.shape(2) / 2;
  const int c = latent.shape(3);
  // [B, h, dy, w, dx, C] -> [B, h, w, C, dy, dx]
  const Array split = mx::reshape(latent, {b, h, 2, w, 2, c});
  return mx::reshape(mx::transpose(split, {0, 1, 3, 5, 2, 4}), {b, h, w, 4 * c});
}

Array AutoencoderKlFlux2::unpatchify(const Array& packed) {
  const int b = packed.shape(0);
  const int h = packed.shape(1);
  const int w = packed.shape(2);
  const int c = packed.shape(3) / 4;
  const Array split = mx::reshape(packed, {b, h, w, c, 2, 2});
  return mx::reshape(mx::transpose(split, {0, 1, 4, 2, 5, 3}), {b, 2 * h, 2 * w, c});
}

Array AutoencoderKlFlux2::normalize(const Array& packed) const {
  return (packed - impl_->mean) / impl_->deviation;
}

Array AutoencoderKlFlux2::denormalize(const Array& packed) const {
  return packed * impl_->deviation + impl_->mean;
}

DecodePlan AutoencoderKlFlux2::plan(const AutoencoderKlFlux2Config& config, int64_t width,
                                    int64_t height, int64_t limit_bytes) {
  const auto& channels = config.decoder_block_out_channels;
  return plan_decode({.height = height / config.downsampling(),
                      .width = width / config.downsampling(),
                      .channels = {channels.rbegin(), channels.rend()},
                      .attention = config.mid_block_add_attention},
                     limit_bytes);
}

}  // namespace mere
