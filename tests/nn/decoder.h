// A FLUX.2 decoder of any shape with random weights, for tests.
#pragma once

#include <cstring>
#include <memory>
#include <random>

#include "core/files.h"
#include "core/json.h"
#include "nn/autoencoder_kl_flux2.h"

namespace mere::test {

class RandomDecoder {
 public:
  // `channels` as in the config: the last level's first.
  explicit RandomDecoder(const std::vector<int64_t>& channels, bool attention = true) {
    config_.latent_channels = 4;
    config_.block_out_channels = channels;
    config_.decoder_block_out_channels = channels;
    config_.layers_per_block = 1;
    config_.norm_num_groups = 4;
    config_.mid_block_add_attention = attention;
    config_.use_quant_conv = false;
    add("bn.running_mean", {config_.packed_channels()});
    add("bn.running_var", {config_.packed_channels()});
    add_layer("post_quant_conv", 4, 4, 1);
    add_layer("decoder.conv_in", channels.back(), 4, 3);
    for (const char* resnet : {"0", "1"}) {
      add_resnet(std::string("decoder.mid_block.resnets.") + resnet, channels.back(),
                 channels.back());
    }
    if (attention) {
      const std::string name = "decoder.mid_block.attentions.0.";
      add_norm(name + "group_norm", channels.back());
      for (const char* linear : {"to_q", "to_k", "to_v", "to_out.0"}) {
        add(name + linear + ".weight", {channels.back(), channels.back()});
        add(name + linear + ".bias", {channels.back()});
      }
    }
    int64_t in = channels.back();
    for (size_t i = 0; i < channels.size(); ++i) {
      const int64_t out = channels[channels.size() - 1 - i];
      const std::string name = "decoder.up_blocks." + std::to_string(i);
      for (const char* resnet : {"0", "1"}) {
        add_resnet(name + ".resnets." + resnet, out, in);
        in = out;
      }
      if (i + 1 < channels.size()) add_layer(name + ".upsamplers.0.conv", out, out, 3);
    }
    add_norm("decoder.conv_norm_out", channels.front());
    add_layer("decoder.conv_out", 3, channels.front(), 3);
  }

  const AutoencoderKlFlux2Config& config() const { return config_; }

  std::unique_ptr<AutoencoderKlFlux2> open() const {
    std::string folder = (fs::temp_directory_path() / "mere-decoder-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
    const std::string header = header_.dump();
    std::string bytes(8, '\0');
    const uint64_t size = header.size();
    std::memcpy(bytes.data(), &size, sizeof size);
    bytes += header;
    bytes.append(reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(float));
    const fs::path file = fs::path(folder) / "model.safetensors";
    write_file_atomic(file, bytes);
    auto vae = std::make_unique<AutoencoderKlFlux2>(config_, Weights::open_file(file), false, true);
    fs::remove_all(folder);
    return vae;
  }

 private:
  // Weights of the size that keeps activations near 1.
  void add(const std::string& name, const std::vector<int64_t>& shape, float least = 0) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    const bool is_vector = shape.size() == 1;
    const auto spread =
        is_vector ? 0.3F : 1.0F / std::sqrt(static_cast<float>(count / shape.front()));
    const size_t begin = values_.size() * sizeof(float);
    for (int64_t i = 0; i < count; ++i) values_.push_back(least + spread * normal_(rng_));
    header_[name] = {{"dtype", "F32"},
                     {"shape", shape},
                     {"data_offsets", {begin, values_.size() * sizeof(float)}}};
  }
  void add_norm(const std::string& name, int64_t channels) {
    add(name + ".weight", {channels}, 1);
    add(name + ".bias", {channels});
  }
  void add_layer(const std::string& name, int64_t out, int64_t in, int64_t kernel) {
    add(name + ".weight", {out, in, kernel, kernel});
    add(name + ".bias", {out});
  }
  void add_resnet(const std::string& name, int64_t out, int64_t in) {
    add_norm(name + ".norm1", in);
    add_layer(name + ".conv1", out, in, 3);
    add_norm(name + ".norm2", out);
    add_layer(name + ".conv2", out, out, 3);
    if (in != out) add_layer(name + ".conv_shortcut", out, in, 1);
  }

  AutoencoderKlFlux2Config config_;
  Json header_ = Json::object();
  std::vector<float> values_;
  std::mt19937 rng_{5};
  std::normal_distribution<float> normal_;
};

}  // namespace mere::test
