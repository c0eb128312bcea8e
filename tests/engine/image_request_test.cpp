#include "engine/image_request.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <sys/stat.h>

#include "fake_family.h"

#include "core/error.h"

namespace mere {
namespace {

class ImageRequestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    reset_fake_family();
    folder.write("models/fake-model/mererun_model.json",
                 R"({"id": "fake-model", "family": "fake"})");
    folder.write("adapter.safetensors", "x");
    request.prompt = "a red apple";
    request.models_dir = folder.path() / "models";
    request.model = "fake-model";
    request.output = (folder.path() / "out.png").string();
    request.seed = 5;
  }

  ResolvedImageRequest resolve() {
    progress.notes.clear();
    progress.warnings.clear();
    return resolve_image_request(request, progress);
  }

  // The error that the request ends in; it must come before any weight is read.
  ErrorInfo error() {
    try {
      resolve();
    } catch (const Error& e) {
      EXPECT_EQ(fake_family().loads, 0);
      kind = e.kind();
      return e.info();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  bool warned(const std::string& text) const {
    for (const std::string& warning : progress.warnings) {
      if (warning.find(text) != std::string::npos) return true;
    }
    return false;
  }

  std::string write_picture(const std::string& name, int64_t width, int64_t height) {
    return folder.write(name, encode_image(Image(width, height), ImageFormat::kPng, {})).string();
  }

  TemporaryFolder folder;
  ImageRequest request;
  RecordingProgress progress;
  ErrorKind kind = ErrorKind::kInternal;
};

TEST_F(ImageRequestTest, FillsDefaultsFromTheModel) {
  const ResolvedImageRequest resolved = resolve();
  const ImageJob& job = resolved.job;
  EXPECT_EQ(job.prompt, "a red apple");
  EXPECT_EQ(job.size, (ImageSize{256, 192}));
  EXPECT_EQ(job.steps, 7);
  EXPECT_EQ(job.guidance, 4.5F);
  EXPECT_EQ(job.max_sequence_length, 77);
  EXPECT_EQ(job.sigma_shift, 3.0F);
  EXPECT_EQ(job.seeds, std::vector<uint64_t>{5});
  EXPECT_EQ(job.strength, 0.0F);
  EXPECT_TRUE(job.sigmas.empty());
  EXPECT_TRUE(resolved.warnings.empty());
  EXPECT_EQ(resolved.outputs, std::vector<fs::path>{folder.path() / "out.png"});
  EXPECT_EQ(progress.notes, (std::vector<std::string>{"model: fake-model", "seed: 5"}));
}

TEST_F(ImageRequestTest, TakesExplicitValues) {
  request.width = 512;
  request.height = 320;
  request.steps = 9;
  request.cfg_scale = 1.5;
  request.negative_prompt = "blurry";
  request.max_sequence_length = 128;
  request.sigma_shift = 2.5;
  const ImageJob job = resolve().job;
  EXPECT_EQ(job.size, (ImageSize{512, 320}));
  EXPECT_EQ(job.steps, 9);
  EXPECT_EQ(job.guidance, 1.5F);
  EXPECT_EQ(job.negative_prompt, "blurry");
  EXPECT_EQ(job.max_sequence_length, 128);
  EXPECT_EQ(job.sigma_shift, 2.5F);
  EXPECT_TRUE(progress.warnings.empty());
}

TEST_F(ImageRequestTest, OneSideTakesTheOtherFromTheModel) {
  request.width = 512;
  EXPECT_EQ(resolve().job.size, (ImageSize{512, 192}));
  request.width.reset();
  request.height = 512;
  EXPECT_EQ(resolve().job.size, (ImageSize{256, 512}));
}

TEST_F(ImageRequestTest, RefusesOddSizesAndNamesTheNearest) {
  request.width = 1000;
  request.height = 750;
  const ErrorInfo info = error();
  EXPECT_EQ(kind, ErrorKind::kUsage);
  EXPECT_EQ(info.code, "size_unsupported");
  EXPECT_EQ(info.field, "--width");
  EXPECT_NE(info.message.find("1000x750"), std::string::npos);
  EXPECT_NE(info.hint.find("992x752"), std::string::npos);
  EXPECT_NE(info.hint.find("1008x752"), std::string::npos);
}

TEST_F(ImageRequestTest, RefusesAbsurdSizes) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  for (const auto& [width, height] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {0, 0}, {-64, 64}, {99999, 99999}, {64, kLow}, {kHigh, kHigh}, {1544, 1544}}) {
    request.width = width;
    request.height = height;
    EXPECT_EQ(error().code, "size_unsupported") << width << "x" << height;
  }
}

TEST_F(ImageRequestTest, SaysWhichSizesAModelDraws) {
  fake_family().info.sizes.only = {{128, 128}};
  fake_family().info.default_size = {128, 128};
  EXPECT_EQ(resolve().job.size, (ImageSize{128, 128}));
  request.width = 256;
  const ErrorInfo info = error();
  EXPECT_NE(info.message.find("this model draws 128x128 only"), std::string::npos);
  EXPECT_EQ(info.hint, "nearest: 128x128");
}

TEST_F(ImageRequestTest, EstimatesMemoryBeforeReadingWeights) {
  request.width = 1024;
  request.height = 1024;
  request.memory_limit_bytes = 100'000'000;
  const ErrorInfo info = error();
  EXPECT_EQ(kind, ErrorKind::kResource);
  EXPECT_EQ(info.code, "memory");
  EXPECT_NE(info.message.find("211 MB"), std::string::npos) << info.message;
  EXPECT_NE(info.message.find("100 MB"), std::string::npos) << info.message;
  EXPECT_NE(info.hint.find("would fit"), std::string::npos);
  // The size of the hint does fit, and guidance at 1 halves the need.
  request.width = 640;
  request.height = 640;
  EXPECT_NO_THROW(resolve());
  request.memory_limit_bytes = 110'000'000;
  request.width = 1024;
  request.height = 1024;
  request.cfg_scale = 1;
  EXPECT_EQ(resolve().job.memory_limit_bytes, 110'000'000);
}

TEST_F(ImageRequestTest, MemoryCountsTheTokensOfTheText) {
  request.width = 256;
  request.height = 256;
  request.memory_limit_bytes = 20'000'000;
  EXPECT_NO_THROW(resolve());
  request.max_sequence_length = 4096;
  EXPECT_EQ(error().code, "memory");
}

TEST_F(ImageRequestTest, MemoryThatIsShortByLittleIsToldInBytes) {
  request.width = 1024;
  request.height = 1024;
  request.cfg_scale = 1;
  request.memory_limit_bytes = 105'857'599;
  const ErrorInfo info = error();
  EXPECT_NE(info.message.find("105857600 bytes"), std::string::npos) << info.message;
  EXPECT_NE(info.message.find("105857599 bytes"), std::string::npos) << info.message;
  EXPECT_NE(info.hint.find("raise --memory-limit"), std::string::npos) << info.hint;
}

TEST_F(ImageRequestTest, MemoryEstimatesThatOverflowAreRefused) {
  fake_family().info.activation_bytes = [](const ImageExtent&) {
    return std::numeric_limits<int64_t>::max();
  };
  EXPECT_EQ(error().code, "memory");
}

TEST_F(ImageRequestTest, RefusesValuesOutOfRange) {
  const auto check = [&](const char* field, auto&& set) {
    const ImageRequest before = request;
    set();
    const ErrorInfo info = error();
    EXPECT_EQ(kind, ErrorKind::kUsage);
    EXPECT_EQ(info.field, field);
    request = before;
  };
  const double nan = std::nan("");
  check("--steps", [&] { request.steps = 0; });
  check("--steps", [&] { request.steps = -4; });
  check("--steps", [&] { request.steps = 1001; });
  check("--cfg", [&] { request.cfg_scale = -1; });
  check("--cfg", [&] { request.cfg_scale = 101; });
  check("--cfg", [&] { request.cfg_scale = nan; });
  check("--cfg", [&] { request.cfg_scale = INFINITY; });
  check("--strength", [&] { request.strength = 1.01; });
  check("--strength", [&] { request.strength = -0.1; });
  check("--strength", [&] { request.strength = nan; });
  check("--max-sequence-length", [&] { request.max_sequence_length = 7; });
  check("--max-sequence-length", [&] { request.max_sequence_length = 4097; });
  check("--count", [&] { request.count = 0; });
  check("--count", [&] { request.count = 1001; });
  check("--sigma-shift", [&] { request.sigma_shift = 0; });
  check("--sigma-shift", [&] { request.sigma_shift = 0.0099; });
  check("--sigma-shift", [&] { request.sigma_shift = nan; });
  check("--memory-limit", [&] { request.memory_limit_bytes = 0; });
  check("--prompt", [&] { request.prompt = std::string((1 << 20) + 1, 'a'); });
  check("--prompt", [&] { request.prompt = "a\xff\xfe"; });
  check("--negative-prompt", [&] { request.negative_prompt = "\xc3"; });
  check("--lora", [&] { request.loras = {{"no/such/adapter.safetensors", 1}}; });
  check("--lora", [&] {
    request.loras = {{(folder.path() / "adapter.safetensors").string(), float(INFINITY)}};
  });
  check("--input", [&] { request.input = "no/such/picture.png"; });
  check("--ref-image", [&] { request.ref_images = {folder.path().string()}; });
}

TEST_F(ImageRequestTest, NamesTheModelWhenAnOptionCannotBeUsed) {
  ImageModelInfo& info = fake_family().info;
  const auto check = [&](const char* field, auto&& set) {
    const ImageRequest before = request;
    set();
    const ErrorInfo refused = error();
    EXPECT_EQ(refused.code, "option_unsupported");
    EXPECT_EQ(refused.field, field);
    EXPECT_NE(refused.message.find("fake-model"), std::string::npos);
    EXPECT_NE(refused.message.find("family fake"), std::string::npos);
    request = before;
  };
  info.references = info.lora = info.sigmas = info.sigma_shift = OptionUse::kRefused;
  check("--input", [&] { request.input = "any.png"; });
  check("--ref-image", [&] { request.ref_images = {"any.png"}; });
  check("--lora", [&] { request.loras = {{"any.safetensors", 1}}; });
  check("--sigmas", [&] { request.sigmas = {1, 0.5}; });
  check("--sigma-shift", [&] { request.sigma_shift = 2; });
}

TEST_F(ImageRequestTest, WarnsAboutOptionsThatAreNotUsed) {
  ImageModelInfo& info = fake_family().info;
  info.references = info.lora = info.sigmas = info.sigma_shift = OptionUse::kIgnored;
  info.guidance_has_effect = false;
  info.default_guidance = 1;
  request.input = "any.png";
  request.loras = {{"any.safetensors", 1}};
  request.sigmas = {1, 0.5};
  request.cfg_scale = 7;
  request.negative_prompt = "blurry";
  request.keep_original_aspect = true;
  const ResolvedImageRequest resolved = resolve();
  EXPECT_TRUE(resolved.job.references.empty());
  EXPECT_TRUE(resolved.job.loras.empty());
  EXPECT_TRUE(resolved.job.sigmas.empty());
  EXPECT_EQ(resolved.job.guidance, 1);
  EXPECT_TRUE(resolved.job.negative_prompt.empty());
  for (const char* text : {"--input is not used", "--lora is not used", "--sigmas is not used",
                           "distilled model: --cfg 7", "distilled model: --negative-prompt",
                           "--keep-original-aspect is not used"}) {
    EXPECT_TRUE(warned(text)) << text;
  }
  EXPECT_EQ(resolved.warnings, progress.warnings);
}

TEST_F(ImageRequestTest, GuidanceOneOnADistilledModelIsNotWorthAWarning) {
  fake_family().info.guidance_has_effect = false;
  request.cfg_scale = 1;
  resolve();
  EXPECT_TRUE(progress.warnings.empty());
}

TEST_F(ImageRequestTest, WarnsWhenTheNegativePromptHasNoGuidance) {
  request.cfg_scale = 1;
  request.negative_prompt = "blurry";
  resolve();
  EXPECT_TRUE(warned("--cfg is above 1"));
}

TEST_F(ImageRequestTest, WarnsAboutAnEmptyPrompt) {
  request.prompt = "  \n";
  resolve();
  EXPECT_TRUE(warned("the prompt is empty"));
}

TEST_F(ImageRequestTest, SigmasDecideTheSteps) {
  request.sigmas = {1.0, 0.75, 0.25, 0.0};
  const ImageJob job = resolve().job;
  EXPECT_EQ(job.sigmas, (std::vector<float>{1.0F, 0.75F, 0.25F}));
  EXPECT_EQ(job.steps, 3);
  EXPECT_EQ(job.sigma_shift, std::nullopt);
  request.steps = 3;
  EXPECT_NO_THROW(resolve());
  request.steps = 4;
  EXPECT_EQ(error().field, "--sigmas");
  request.steps.reset();
  for (const std::vector<double>& bad : {std::vector<double>{0.0},
                                         {0.5, 0.5},
                                         {0.2, 0.9},
                                         {1.5, 0.5},
                                         {1, -0.5},
                                         {1, 0, 0.5},
                                         {std::nan(""), 0.5}}) {
    request.sigmas = bad;
    EXPECT_EQ(error().code, "sigmas_invalid");
  }
  request.sigmas = {1, 0.5};
  request.sigma_shift = 2;
  EXPECT_EQ(error().code, "options_conflict");
}

TEST_F(ImageRequestTest, SeedsCountUp) {
  request.seed = 0;
  request.count = 3;
  const ResolvedImageRequest resolved = resolve();
  EXPECT_EQ(resolved.job.seeds, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(resolved.outputs,
            (std::vector<fs::path>{folder.path() / "out-0.png", folder.path() / "out-1.png",
                                   folder.path() / "out-2.png"}));
  request.seed = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(error().field, "--seed");
  request.count = 1;
  EXPECT_EQ(resolve().job.seeds[0], std::numeric_limits<uint64_t>::max());
}

TEST_F(ImageRequestTest, ARandomSeedDiffersAndIsTold) {
  request.seed.reset();
  const uint64_t first = resolve().job.seeds[0];
  EXPECT_EQ(progress.notes.back(), "seed: " + std::to_string(first));
  EXPECT_LE(first, 0xFFFFFFFFU);
  bool differs = false;
  for (int i = 0; i < 4; ++i) differs |= resolve().job.seeds[0] != first;
  EXPECT_TRUE(differs);
}

TEST_F(ImageRequestTest, OutputPaths) {
  request.output = (folder.path() / "new/deep/picture").string();
  EXPECT_EQ(resolve().outputs[0], folder.path() / "new/deep/picture.png");
  EXPECT_FALSE(fs::exists(folder.path() / "new"));
  request.output = (folder.path() / "a/../picture.JPG").string();
  EXPECT_EQ(resolve().outputs[0], folder.path() / "picture.JPG");
  request.output = "";
  const fs::path by_default = resolve().outputs[0];
  EXPECT_TRUE(by_default.is_absolute());
  EXPECT_EQ(by_default.filename().string().rfind("mererun-image-", 0), 0U);
  EXPECT_EQ(by_default.extension(), ".png");

  folder.write("file", "x");
  ::mkfifo((folder.path() / "pipe.png").c_str(), 0600);
  fs::create_directory(folder.path() / "folder.png");
  fs::create_symlink("absent.png", folder.path() / "link.png");
  fs::create_symlink("loop", folder.path() / "loop");
  fs::create_symlink("absent", folder.path() / "link");
  const std::string base = folder.path().string();
  for (const auto& [output, code] : std::vector<std::pair<std::string, std::string>>{
           {base + "/picture.gif", ""},
           {base + "/picture.v2", ""},
           {base, "output_is_folder"},
           {base + "/", "output_is_folder"},
           {base + "/folder.png", "output_is_folder"},
           {base + "/..", "output_is_folder"},
           {base + "/file/picture.png", "output_unwritable"},
           {base + "/pipe.png", "output_not_a_file"},
           {base + "/link.png", "output_not_a_file"},
           {base + "/loop", "output_not_a_file"},
           {base + "/link/a.png", "output_unwritable"},
           {"/dev/null", "output_not_a_file"},
           {"/dev/new", "output_not_a_file"},
           {base + "/a\xff.png", "output_name_not_utf8"},
           {base + "/a\tb.png", "output_name_invalid"},
           {"/proc/picture.png", ""},
           {base + "/" + std::string(300, 'a') + ".png", "output_name_too_long"},
           {"-", "output_not_a_file"}}) {
    request.output = output;
    if (output == "/proc/picture.png" && ::access("/proc", W_OK) == 0) continue;
    const ErrorInfo info = error();
    EXPECT_EQ(kind, ErrorKind::kUsage) << output;
    EXPECT_TRUE(code.empty() || info.code == code) << output << ": " << info.code;
  }
}

TEST_F(ImageRequestTest, RefusesFamiliesItDoesNotHave) {
  folder.write("models/other/mererun_model.json", R"({"family": "krea"})");
  request.model = "other";
  const ErrorInfo info = error();
  EXPECT_EQ(info.code, "family_unsupported");
  EXPECT_NE(info.message.find("krea"), std::string::npos);
  request.model = "none";
  EXPECT_EQ(error().code, "model_not_installed");
}

TEST_F(ImageRequestTest, SaysWhyTheDefaultModelWasChosen) {
  request.model = "";
  EXPECT_EQ(resolve().model.manifest.id, "fake-model");
  EXPECT_NE(progress.notes[0].find("the only image model installed"), std::string::npos);
}

TEST_F(ImageRequestTest, ReadsReferencesInputFirst) {
  request.ref_images = {write_picture("b.png", 80, 70), write_picture("c.png", 90, 70)};
  ImageJob job = resolve().job;
  EXPECT_EQ(job.strength, 0.0F);
  EXPECT_EQ(job.size, (ImageSize{80, 64}));
  ASSERT_EQ(job.references.size(), 2U);

  request.input = write_picture("a.png", 64, 70);
  job = resolve().job;
  EXPECT_EQ(job.strength, 0.75F);
  ASSERT_EQ(job.references.size(), 2U);
  EXPECT_EQ(job.references[0].width, 64);
  EXPECT_EQ(job.references[1].width, 80);
  EXPECT_TRUE(warned("only the first 2 of 3 pictures"));

  request.strength = 0.5;
  request.width = 128;
  job = resolve().job;
  EXPECT_EQ(job.strength, 0.5F);
  EXPECT_EQ(job.size, (ImageSize{128, 192}));
}

TEST_F(ImageRequestTest, AReferenceTheFamilyRefusesIsNamedBeforeAnyWeightIsRead) {
  request.ref_images = {write_picture("tiny.png", 32, 70)};
  EXPECT_EQ(error().code, "reference_size");
  EXPECT_NE(error().message.find("tiny.png"), std::string::npos);
  EXPECT_EQ(fake_family().loads, 0);
}

TEST_F(ImageRequestTest, AModelOfListedSizesKeepsItsSizeWithReferences) {
  fake_family().info.sizes.only = {{128, 128}};
  fake_family().info.default_size = {128, 128};
  request.input = write_picture("a.png", 80, 70);
  EXPECT_EQ(resolve().job.size, (ImageSize{128, 128}));
}

TEST_F(ImageRequestTest, DamagedPicturesAreErrorsOfTheFile) {
  request.input = folder.write("a.png", "\x89").string();
  error();
  EXPECT_EQ(kind, ErrorKind::kIo);
}

TEST_F(ImageRequestTest, StrengthAloneIsNotUsed) {
  request.strength = 0.5;
  EXPECT_EQ(resolve().job.strength, 0.0F);
  EXPECT_TRUE(warned("--strength is not used"));
}

TEST_F(ImageRequestTest, TakesAdapters) {
  const std::string path = (folder.path() / "adapter.safetensors").string();
  request.loras = {{path, 0.5F}, {path, -2.0F}};
  EXPECT_EQ(resolve().job.loras.size(), 2U);
  request.loras.push_back({path, 1});
  EXPECT_EQ(error().code, "too_many_loras");
}

}  // namespace
}  // namespace mere
