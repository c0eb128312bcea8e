// Damaged, hostile and incomplete models: one line naming file and tensor, exit 1 or 64, no
// picture.
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <limits>

#include "program.h"

#include "core/json.h"

namespace mere {
namespace {

class DamagedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fs::path(MERE_FIXTURES) / "klein" / "model", model(), fs::copy_options::recursive);
  }
  fs::path model() const { return program_.folder() / "model"; }
  fs::path file(const std::string& name) const { return model() / name; }

  ProgramResult draw() const {
    return program_.run({"image", "generate", "--model", "model", "--prompt", "a mug", "--output",
                         "out.png", "--width", "64", "--height", "64", "--steps", "1", "--seed",
                         "1", "--max-sequence-length", "32", "--quiet"});
  }

  // Runs, and expects one error line that holds each of `words`, and nothing written.
  void expect_refused(const std::vector<std::string>& words) const {
    const ProgramResult result = draw();
    EXPECT_TRUE(result.status == 1 || result.status == 64) << result.status << "\n" << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    for (const std::string& word : words) {
      EXPECT_NE(result.err.find(word), std::string::npos) << word << "\n" << result.err;
    }
    EXPECT_EQ(program_.files(), std::vector<std::string>{"model"});
  }

  void edit(const std::string& name, const std::function<void(std::string&)>& change) const {
    std::string bytes = read_file(file(name), 1 << 24);
    change(bytes);
    write_file_atomic(file(name), bytes);
  }

  // Overwrites the first value of a bf16 tensor.
  void poison(const std::string& name, const std::string& tensor, uint16_t bits) const {
    edit(name, [&](std::string& bytes) {
      uint64_t header = 0;
      std::memcpy(&header, bytes.data(), sizeof header);
      const Json json = Json::parse(bytes.substr(8, header));
      const auto begin = json.at(tensor).at("data_offsets").at(0).get<size_t>();
      std::memcpy(bytes.data() + 8 + header + begin, &bits, sizeof bits);
    });
  }

  void replace_header(const std::string& name, const std::string& json) const {
    edit(name, [&](std::string& bytes) {
      uint64_t header = 0;
      std::memcpy(&header, bytes.data(), sizeof header);
      const std::string data = bytes.substr(8 + header);
      const uint64_t length = json.size();
      bytes.assign(reinterpret_cast<const char*>(&length), sizeof length);
      bytes += json + data;
    });
  }

  Program program_;
};

constexpr const char* kTransformer = "transformer/diffusion_pytorch_model.safetensors";
constexpr const char* kVae = "vae/diffusion_pytorch_model.safetensors";
constexpr const char* kShard2 = "text_encoder/model-00002-of-00002.safetensors";
constexpr uint16_t kNanBits = 0x7FC0;
constexpr uint16_t kHugeBits = 0x7E96;  // the bfloat16 next to 1e38

TEST_F(DamagedModel, SoundModelDraws) {
  const ProgramResult result = draw();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(program_.files(), (std::vector<std::string>{"model", "out.png"}));
}

TEST_F(DamagedModel, NanInTransformer) {
  poison(kTransformer, "proj_out.weight", kNanBits);
  expect_refused({kTransformer, "proj_out.weight", "NaN"});
}

TEST_F(DamagedModel, HugeInTransformer) {
  poison(kTransformer, "transformer_blocks.0.attn.to_q.weight", kHugeBits);
  expect_refused({kTransformer, "transformer_blocks.0.attn.to_q.weight", "9.96921e+37"});
}

TEST_F(DamagedModel, HugeNormWeightInTextEncoder) {
  // A norm would squash it into a finite, wrong picture.
  poison("text_encoder/model-00001-of-00002.safetensors", "model.layers.0.mlp.up_proj.weight",
         kHugeBits);
  expect_refused({"model-00001-of-00002.safetensors", "model.layers.0.mlp.up_proj.weight"});
}

TEST_F(DamagedModel, NanInVae) {
  // The tensor with the smallest name will do: any is checked.
  poison(kVae, "bn.running_mean", kNanBits);
  expect_refused({kVae, "bn.running_mean", "NaN"});
}

TEST_F(DamagedModel, TruncatedWeights) {
  edit(kTransformer, [](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  expect_refused({kTransformer, "truncated"});
}

TEST_F(DamagedModel, HeaderLengthBeyondTheFile) {
  edit(kTransformer, [](std::string& bytes) {
    const uint64_t length = uint64_t{1} << 60;
    std::memcpy(bytes.data(), &length, sizeof length);
  });
  expect_refused({kTransformer, "header length"});
}

TEST_F(DamagedModel, EmptyAndTinyFiles) {
  for (const size_t size : {0, 1, 7}) {
    edit(kTransformer, [&](std::string& bytes) { bytes.resize(size); });
    expect_refused({kTransformer});
  }
}

TEST_F(DamagedModel, OffsetsPastTheEnd) {
  replace_header(
      kTransformer,
      R"({"proj_out.weight":{"dtype":"BF16","shape":[4],"data_offsets":[0,99999999999]}})");
  expect_refused({kTransformer, "proj_out.weight"});
}

TEST_F(DamagedModel, OverlappingTensors) {
  replace_header(kTransformer, R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},)"
                               R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[4,12]}})");
  expect_refused({kTransformer, "overlaps"});
}

TEST_F(DamagedModel, NegativeShape) {
  replace_header(kTransformer, R"({"a":{"dtype":"BF16","shape":[-4],"data_offsets":[0,8]}})");
  expect_refused({kTransformer, "negative"});
}

TEST_F(DamagedModel, DuplicateKeys) {
  replace_header(kTransformer, R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},)"
                               R"("a":{"dtype":"BF16","shape":[4],"data_offsets":[8,16]}})");
  expect_refused({kTransformer, "\"a\""});
}

TEST_F(DamagedModel, WrongDtype) {
  edit(kTransformer, [](std::string& bytes) {
    const size_t name = bytes.find("\"proj_out.weight\"");
    bytes.replace(bytes.find("BF16", name), 4, "I16 ");
    bytes.replace(bytes.find("\"I16 \"", name), 6, "\"I16\" ");
  });
  expect_refused({kTransformer, "proj_out.weight", "I16"});
}

TEST_F(DamagedModel, WrongShape) {
  edit("transformer/config.json", [](std::string& json) {
    const std::string heads = "\"num_attention_heads\": 2";
    json.replace(json.find(heads), heads.size(), "\"num_attention_heads\": 3");
  });
  expect_refused({kTransformer, "tensor \"", "is expected"});
}

TEST_F(DamagedModel, MissingShard) {
  fs::remove(file(kShard2));
  expect_refused({"model-00002-of-00002.safetensors", "missing"});
}

TEST_F(DamagedModel, GitLfsPointer) {
  write_file_atomic(file(kVae),
                    "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n");
  expect_refused({kVae, "Git LFS pointer"});
}

TEST_F(DamagedModel, ShardNameThatLeavesTheFolder) {
  edit("text_encoder/model.safetensors.index.json", [](std::string& json) {
    const std::string shard = "model-00002-of-00002.safetensors";
    for (size_t at = json.find(shard); at != std::string::npos; at = json.find(shard)) {
      json.replace(at, shard.size(), "../../../../etc/passwd");
    }
  });
  expect_refused({"../../../../etc/passwd", "leaves the folder"});
}

TEST_F(DamagedModel, BrokenTokenizer) {
  edit("tokenizer/tokenizer.json", [](std::string& json) { json.resize(json.size() / 2); });
  expect_refused({"tokenizer.json"});
}

TEST_F(DamagedModel, MissingTensor) {
  edit(kTransformer, [](std::string& bytes) {
    const std::string name = "\"norm_out.linear.weight\"";
    bytes.replace(bytes.find(name), name.size(), "\"norm_out.linear.wrong_\"");
  });
  expect_refused({"norm_out.linear.weight", "missing"});
}

// Each of these drew a plausible wrong picture: part of the weights was not used.
TEST_F(DamagedModel, ConfigOfASmallerModel) {
  struct Change {
    const char* file;
    const char* from;
    const char* to;
    const char* tensor;
  };
  const std::vector<Change> changes = {
      {"transformer/config.json", "\"num_layers\": 2", "\"num_layers\": 1",
       "transformer_blocks.1."},
      {"transformer/config.json", "\"num_single_layers\": 2", "\"num_single_layers\": 1",
       "single_transformer_blocks.1."},
      {"vae/config.json", "\"layers_per_block\": 2", "\"layers_per_block\": 1", "resnets."},
  };
  for (const Change& change : changes) {
    std::string original;
    edit(change.file, [&](std::string& json) {
      original = json;
      json.replace(json.find(change.from), std::strlen(change.from), change.to);
    });
    expect_refused({"safetensors", change.tensor, "no place"});
    write_file_atomic(file(change.file), original);
  }
}

TEST_F(DamagedModel, TokenizerWithoutMerges) {
  edit("tokenizer/tokenizer.json", [](std::string& json) {
    const size_t at = json.find("\"merges\"");
    json.replace(at, 8, "\"merged\"");
  });
  expect_refused({"tokenizer.json", "merges"});
}

TEST_F(DamagedModel, HostilePictures) {
  const auto refused = [&](const std::string& bytes) {
    program_.write("in.png", bytes);
    const ProgramResult result =
        program_.run({"image", "generate", "--model", "model", "--prompt", "a mug", "--output",
                      "out.png", "--ref-image", "in.png", "--quiet"});
    EXPECT_TRUE(result.status == 1 || result.status == 64) << result.status;
    EXPECT_NE(result.err.find("in.png"), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_FALSE(fs::exists(program_.folder() / "out.png"));
  };
  refused("\x89");
  refused("");
  // A sound header of 60000 x 60000 pixels with its checksum.
  refused(
      std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0"
                  "\x0f\xb0\xe2\x15",
                  33));
}

}  // namespace
}  // namespace mere
