#include "families/klein/references.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace mere::klein {
namespace {

constexpr double kTargetArea = 1024.0 * 1024.0;
constexpr int64_t kMultiple = 16;
constexpr int64_t kMinSide = 64;
constexpr int64_t kMaxAspect = 8;

Image centre_crop(const Image& image, int64_t width, int64_t height) {
  return crop(image, (image.width - width) / 2, (image.height - height) / 2, width, height);
}

}  // namespace

Image prepare_reference(const Image& image, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError{
        {"reference_size", name,
         name + ": " + std::to_string(image.width) + "x" + std::to_string(image.height) + " " + why,
         ""}};
  };
  if (std::min(image.width, image.height) < kMinSide) {
    refuse("is too small for a reference; each side needs 64 pixels");
  }
  if (std::max(image.width, image.height) > kMaxAspect * std::min(image.width, image.height)) {
    refuse("is too long for a reference; the sides may differ by 8:1");
  }
  Image sized = image;
  const auto area = static_cast<double>(image.width) * static_cast<double>(image.height);
  if (area > kTargetArea) {
    const double scale = std::sqrt(kTargetArea / area);
    sized = resize_lanczos(image, static_cast<int64_t>(static_cast<double>(image.width) * scale),
                           static_cast<int64_t>(static_cast<double>(image.height) * scale));
  }
  return centre_crop(sized, sized.width / kMultiple * kMultiple,
                     sized.height / kMultiple * kMultiple);
}

Image cover(const Image& image, int64_t width, int64_t height) {
  const double scale = std::max(static_cast<double>(width) / static_cast<double>(image.width),
                                static_cast<double>(height) / static_cast<double>(image.height));
  const auto side = [scale](int64_t from, int64_t least) {
    return std::max(least, static_cast<int64_t>(std::lround(static_cast<double>(from) * scale)));
  };
  return centre_crop(resize_lanczos(image, side(image.width, width), side(image.height, height)),
                     width, height);
}

Array image_to_array(const Image& image) {
  std::vector<float> values(image.rgb.size());
  std::ranges::transform(image.rgb, values.begin(),
                         [](uint8_t v) { return 2.0F * (static_cast<float>(v) / 255.0F) - 1.0F; });
  return array_from(values, {1, static_cast<int>(image.height), static_cast<int>(image.width), 3});
}

Image array_to_image(const Array& x) {
  Image image(x.shape(2), x.shape(1));
  const std::vector<float> values = to_floats(x);
  std::ranges::transform(values, image.rgb.begin(), [](float v) {
    const float unit = std::clamp(v / 2.0F + 0.5F, 0.0F, 1.0F);
    return static_cast<uint8_t>(std::nearbyint(unit * 255.0F));
  });
  return image;
}

}  // namespace mere::klein
