#include "fake_family.h"

#include <algorithm>
#include <fstream>
#include <stdlib.h>

#include "core/error.h"
#include "engine/families.h"

namespace mere {
namespace {

class FakeModel : public ImageModel {
 public:
  ImageRun generate(const ImageJob& job, Progress& progress, const ImageSink& sink) override {
    FakeFamilyState& state = fake_family();
    state.job = job;
    const ImageSize size = job.size;
    for (size_t i = 0; i < job.seeds.size(); ++i) {
      if (state.before_picture) state.before_picture(i, progress);
      for (int step = 0; step <= job.steps; ++step) {
        progress.report(Stage::kDenoising, step, job.steps);
      }
      Image pixels(size.width, size.height);
      for (size_t k = 0; k < pixels.rgb.size(); ++k) {
        pixels.rgb[k] = static_cast<uint8_t>(k * 7 + job.seeds[i]);
      }
      sink({std::move(pixels), job.seeds[i]});
    }
    return {{{"denoise", 0.5}}, {}, "none", "whole"};
  }
};

class FakeFamily : public ImageFamily {
 public:
  std::string_view name() const override { return "fake"; }
  ImageModelInfo describe(const ModelRoot&) const override { return fake_family().info; }
  std::unique_ptr<ImageModel> load(const ModelRoot&, Progress& progress) const override {
    ++fake_family().loads;
    progress.report(Stage::kLoadingModel, 0, 1);
    progress.report(Stage::kLoadingModel, 1, 1);
    return std::make_unique<FakeModel>();
  }
  std::string case_kind(const fs::path&) const override { return {}; }
  CaseCheck run_case(const GoldenCase&, Progress&) const override { return {}; }
  CaseCheck self_check(const ModelRoot&, std::string_view, Progress&) const override { return {}; }
};

}  // namespace

FakeFamilyState& fake_family() {
  static FakeFamilyState state;
  return state;
}

void reset_fake_family() {
  fake_family() = {};
  ImageModelInfo& info = fake_family().info;
  info.default_size = {256, 192};
  info.prepare_reference = [](const Image& image, const std::string& name) {
    if (image.width < 64) throw UsageError{{"reference_size", name, name + " is too small", ""}};
    return crop(image, 0, 0, image.width / 16 * 16, image.height / 16 * 16);
  };
  info.default_steps = 7;
  info.default_guidance = 4.5F;
  info.default_max_sequence_length = 77;
  info.default_sigma_shift = 3.0F;
  info.guidance_has_effect = true;
  info.references = OptionUse::kUsed;
  info.max_references = 2;
  info.lora = OptionUse::kUsed;
  info.max_loras = 2;
  info.sigmas = OptionUse::kUsed;
  info.sigma_shift = OptionUse::kUsed;
  info.weight_bytes = 1'000'000;
  info.activation_bytes = [](const ImageExtent& picture) {
    return picture.size.width * picture.size.height * 100 * (1 + picture.references) *
               (picture.guided ? 2 : 1) +
           10'000 * std::max(0, picture.text_tokens - 512);
  };
}

const ImageFamily* find_image_family(std::string_view name) {
  static const FakeFamily family;
  return name == family.name() ? &family : nullptr;
}

std::vector<std::string> image_family_names() { return {"fake"}; }

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "mere-test-XXXXXX").string();
  path_ = ::mkdtemp(name.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ec;
  fs::remove_all(path_, ec);
}

fs::path TemporaryFolder::write(const std::string& name, const std::string& text) const {
  const fs::path file = path_ / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    names.push_back(entry.path().lexically_relative(path_).string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace mere
