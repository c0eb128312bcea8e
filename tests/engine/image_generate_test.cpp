#include <gtest/gtest.h>
#include <stdlib.h>

#include "fake_family.h"

#include "core/error.h"
#include "core/json.h"
#include "core/system.h"
#include "engine/admission.h"
#include "engine/image_request.h"

namespace mere {
namespace {

class ImageGenerate : public ::testing::Test {
 protected:
  void SetUp() override {
    reset_fake_family();
    ::setenv("XDG_CACHE_HOME", (folder.path() / "cache").c_str(), 1);
    ::setenv("XDG_DATA_HOME", (folder.path() / "data").c_str(), 1);
    folder.write("models/fake-model/mererun_model.json",
                 R"({"id": "fake-model", "family": "fake"})");
    folder.write("models/fake-model/vae/a.safetensors", "weights");
    adapter = folder.write("style.safetensors", "adapter").string();
    request.prompt = "a red apple";
    request.models_dir = folder.path() / "models";
    request.model = "fake-model";
    request.width = 64;
    request.height = 64;
    request.seed = 40;
    fs::create_directory(out());
    request.output = (out() / "picture.png").string();
  }
  void TearDown() override {
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("XDG_DATA_HOME");
  }

  fs::path out() const { return folder.path() / "out"; }
  fs::path ledger() const { return folder.path() / "data/MereRun/admission/state.json"; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const std::string& name : folder.names()) {
      if (name.rfind("out/", 0) == 0) names.push_back(name.substr(4));
    }
    return names;
  }

  TemporaryFolder folder;
  std::string adapter;
  ImageRequest request;
  RecordingProgress progress;
};

TEST_F(ImageGenerate, WritesThePictureAndTellsEverything) {
  request.loras = {{adapter, 0.5F}};
  const ImageResult result = generate_images(request, progress);
  ASSERT_EQ(result.outputs.size(), 1U);
  EXPECT_EQ(result.outputs[0].path, out() / "picture.png");
  EXPECT_EQ(result.outputs[0].seed, 40U);
  EXPECT_EQ(result.model_id, "fake-model");
  EXPECT_EQ(result.family, "fake");
  EXPECT_EQ(result.size, (ImageSize{64, 64}));
  EXPECT_EQ(result.steps, 7);
  EXPECT_EQ(result.guidance, 4.5F);
  EXPECT_EQ(result.decode_mode, "whole");
  EXPECT_EQ(result.model_digest.size(), 64U);
  EXPECT_GT(result.peak_memory_bytes, 0);
  std::vector<std::string> stages;
  for (const StageTiming& timing : result.timings) stages.push_back(timing.stage);
  EXPECT_EQ(stages, (std::vector<std::string>{"load", "denoise", "digest", "save"}));
  EXPECT_EQ(progress.events.back(), "saving 1/1");
  EXPECT_EQ(files(), std::vector<std::string>{"picture.png"});

  const ImageInfo info = read_image_info(out() / "picture.png");
  ASSERT_EQ(info.text.size(), 2U);
  EXPECT_EQ(info.text[0].first, "parameters");
  EXPECT_EQ(info.text[0].second,
            "a red apple\nSteps: 7, CFG scale: 4.5, Seed: 40, Size: 64x64, Model: fake-model, "
            "Model hash: " +
                result.model_digest.substr(0, 10) +
                ", Lora: \"style.safetensors: 0.5\", Version: mere.run " + version());
  EXPECT_EQ(info.text[1].first, "mere.run");
  const Json json = parse_json(info.text[1].second, "text");
  EXPECT_EQ(json.at("prompt"), "a red apple");
  EXPECT_EQ(json.at("seed"), 40);
  EXPECT_EQ(json.at("width"), 64);
  EXPECT_EQ(json.at("cfg"), 4.5);
  EXPECT_EQ(json.at("model"), "fake-model");
  EXPECT_EQ(json.at("model_digest"), result.model_digest);
  EXPECT_EQ(json.at("version"), version());
  EXPECT_EQ(json.at("loras").at(0).at("file"), "style.safetensors");
  EXPECT_EQ(json.at("loras").at(0).at("sha256"), sha256_hex("adapter"));
  EXPECT_EQ(info.text[1].second.find(folder.path().string()), std::string::npos);
}

TEST_F(ImageGenerate, NoMetadataMeansNone) {
  request.metadata = false;
  for (const char* name : {"a.png", "a.jpg", "a.webp"}) {
    request.output = (out() / name).string();
    generate_images(request, progress);
    EXPECT_TRUE(read_image_info(out() / name).text.empty()) << name;
    const std::string bytes = read_file(out() / name, 1 << 20);
    EXPECT_EQ(bytes.find("apple"), std::string::npos);
    EXPECT_EQ(bytes.find("mere"), std::string::npos);
  }
}

TEST_F(ImageGenerate, EveryFormatKeepsALongPrompt) {
  request.prompt = std::string(200'000, 'a') + " 🍎";
  for (const char* name : {"a.png", "a.jpg", "a.webp"}) {
    request.output = (out() / name).string();
    EXPECT_NO_THROW(generate_images(request, progress)) << name;
    EXPECT_EQ(read_image(out() / name).width, 64) << name;
  }
  const ImageInfo info = read_image_info(out() / "a.png");
  EXPECT_EQ(parse_json(info.text.at(1).second, "text").at("prompt"), request.prompt);
}

TEST_F(ImageGenerate, SeveralPicturesEqualSingleRuns) {
  request.count = 3;
  const ImageResult result = generate_images(request, progress);
  ASSERT_EQ(result.outputs.size(), 3U);
  EXPECT_EQ(files(),
            (std::vector<std::string>{"picture-40.png", "picture-41.png", "picture-42.png"}));
  request.count = 1;
  request.seed = 42;
  request.output = (out() / "single.png").string();
  generate_images(request, progress);
  EXPECT_EQ(read_file(out() / "single.png", 1 << 20), read_file(out() / "picture-42.png", 1 << 20));
}

TEST_F(ImageGenerate, CancelledRunsLeaveNoFile) {
  fake_family().before_picture = [](size_t, Progress& p) { p.cancel(); };
  EXPECT_THROW(generate_images(request, progress), Cancelled);
  EXPECT_TRUE(files().empty());
}

TEST_F(ImageGenerate, CancelledBeforeSavingLeavesNoFile) {
  class CancelAtSaving : public RecordingProgress {
    void on_report(Stage stage, int64_t step, int64_t total) override {
      RecordingProgress::on_report(stage, step, total);
      if (stage == Stage::kSaving) cancel();
    }
  } cancelling;
  EXPECT_THROW(generate_images(request, cancelling), Cancelled);
  EXPECT_TRUE(files().empty());
}

TEST_F(ImageGenerate, FinishedPicturesStayWhenALaterOneFails) {
  request.count = 3;
  fake_family().before_picture = [](size_t i, Progress& p) {
    if (i == 2) p.cancel();
  };
  std::vector<uint64_t> told;
  EXPECT_THROW(generate_images(request, progress,
                               [&](const ImageOutput& output) {
                                 EXPECT_TRUE(fs::exists(output.path));
                                 told.push_back(output.seed);
                               }),
               Cancelled);
  EXPECT_EQ(told, (std::vector<uint64_t>{40, 41}));
  EXPECT_EQ(files(), (std::vector<std::string>{"picture-40.png", "picture-41.png"}));
  ASSERT_EQ(progress.warnings.size(), 1U);
  EXPECT_EQ(progress.warnings[0].rfind("2 of 3 pictures were finished and stay", 0), 0U);
}

TEST_F(ImageGenerate, ErrorsOfTheModelPassThrough) {
  fake_family().before_picture = [](size_t, Progress&) {
    throw InternalError{{"not_finite", "denoising", "NaN in step 1", ""}};
  };
  EXPECT_THROW(generate_images(request, progress), InternalError);
  EXPECT_TRUE(files().empty());
}

TEST_F(ImageGenerate, TheSizeStoredIsTheRealOne) {
  request.width.reset();
  request.height.reset();
  request.input = folder.write("in.png", encode_image(Image(99, 70), ImageFormat::kPng, {}));
  const ImageResult result = generate_images(request, progress);
  EXPECT_EQ(result.size, (ImageSize{96, 64}));
  const Json json = parse_json(read_image_info(out() / "picture.png").text.at(1).second, "text");
  EXPECT_EQ(json.at("width"), 96);
  EXPECT_EQ(json.at("height"), 64);
  EXPECT_EQ(json.at("strength"), 0.75);
  EXPECT_EQ(json.at("references"), 1);
}

// ---- The queue of jobs --------------------------------------------------------------------------

TEST_F(ImageGenerate, SmallJobsTakeNoTicket) {
  generate_images(request, progress);
  EXPECT_FALSE(fs::exists(ledger()));
}

TEST_F(ImageGenerate, AJobHoldsATicketFromItsWeightsToItsLastPicture) {
  const HostSample host = sample_host(folder.path());
  if (host.disk.value_or(0) < minimum_disk_bytes(host) || host.available.value_or(0) < 2 * kGib) {
    GTEST_SKIP() << "this machine starts no job that needs a ticket";
  }
  fake_family().info.weight_bytes = kGib;
  request.count = 2;
  int seen = 0;
  fake_family().before_picture = [&](size_t, Progress&) {
    const AdmissionLedger held = read_ledger(ledger());
    ASSERT_EQ(held.tickets.size(), 1U);
    EXPECT_EQ(held.tickets[0].label, "image generate");
    EXPECT_EQ(held.tickets[0].resource_class, ResourceClass::kStandard);
    EXPECT_TRUE(held.tickets[0].active);
    ++seen;
  };
  const ImageResult result = generate_images(request, progress);
  EXPECT_EQ(seen, 2);
  EXPECT_TRUE(read_ledger(ledger()).tickets.empty());
  EXPECT_NE(result.timings.front().stage, "waiting");
  // Also when it fails.
  fake_family().before_picture = [](size_t, Progress& p) {
    p.cancel();
    p.check_cancelled();
  };
  EXPECT_THROW(generate_images(request, progress), Cancelled);
  EXPECT_TRUE(read_ledger(ledger()).tickets.empty());
}

// What the machine has not at the moment is an error after the wait, and names a size that fits.
TEST_F(ImageGenerate, MemoryThatIsNotFreeIsAnErrorOfTheRequest) {
  const int64_t available = available_memory_bytes();
  fake_family().info.activation_bytes = [&](const ImageExtent& picture) {
    return picture.size.width > 64 ? available + available / 2 : int64_t{1000};
  };
  request.width = 128;
  if (available + available / 2 > usable_memory_bytes()) {
    // It could never fit: said while the request is checked.
    EXPECT_THROW(resolve_image_request(request, progress), ResourceError);
  }
  try {
    generate_images(request, progress);
    FAIL();
  } catch (const ResourceError& e) {
    EXPECT_TRUE(e.info().code == "memory" || e.info().code == "admission_disk") << e.what();
  }
  EXPECT_EQ(fake_family().loads, 0);
  request.width = 64;
  EXPECT_EQ(generate_images(request, progress).outputs.size(), 1U);
}

}  // namespace
}  // namespace mere
