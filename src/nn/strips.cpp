#include "nn/strips.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "kernels/buffer_cache.h"

namespace mere {

std::vector<Strip> strips_of(int height, int rows) {
  std::vector<Strip> strips;
  for (int begin = 0; begin < height; begin += rows) {
    strips.push_back({begin, std::min(begin + rows, height)});
  }
  return strips;
}

Array rows_of(const Array& picture, int begin, int end) {
  return mx::contiguous(mx::slice(picture, {0, begin, 0, 0},
                                  {picture.shape(0), end, picture.shape(2), picture.shape(3)}));
}

void PooledMoments::add(const StripRows& rows, const Strip& strip, int groups) {
  Array moments = group_moments(rows.x, groups, rows.own(strip));
  mx::eval(moments);
  parts_.push_back({strip.end - strip.begin, std::move(moments)});
}

Array PooledMoments::value() const {
  std::vector<std::vector<float>> moments;
  for (const Part& part : parts_) moments.push_back(to_floats(part.moments));
  const auto average = [&](const auto& of_part) {
    double sum = 0;
    double rows = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      sum += of_part(moments[i]) * parts_[i].rows;
      rows += parts_[i].rows;
    }
    return sum / rows;
  };
  std::vector<float> all(moments.front().size());
  for (size_t at = 0; at < all.size(); at += 2) {
    const double mean = average([&](const auto& m) { return double{m[at]}; });
    all[at] = static_cast<float>(mean);
    all[at + 1] = static_cast<float>(
        average([&](const auto& m) { return m[at + 1] + (m[at] - mean) * (m[at] - mean); }));
  }
  return array_from(all, parts_.front().moments.shape());
}

StripPicture::StripPicture(const mx::Shape& shape)
    : picture_(cached_buffer(std::accumulate(shape.begin(), shape.end(), sizeof(float),
                                             std::multiplies<size_t>())),
               shape, mx::float32) {}

StripRows StripPicture::read(const Strip& strip, int halo) const {
  const int first = std::max(0, strip.begin - halo);
  Array x = rows_of(picture_, first, std::min(picture_.shape(1), strip.end + halo));
  mx::eval(x);  // later writes must not show
  return {std::move(x), first};
}

void StripPicture::write(const StripRows& rows, const Strip& strip) {
  Array dense = mx::contiguous(rows.x);
  mx::eval(dense);
  finish();
  pending_.emplace(Pending{{std::move(dense), rows.first}, strip});
}

void StripPicture::finish() {
  if (!pending_) return;
  const auto& [rows, strip] = *pending_;
  const int64_t row = int64_t{picture_.shape(2)} * picture_.shape(3);
  const int64_t from_rows = rows.x.shape(1);
  for (int64_t b = 0; b < picture_.shape(0); ++b) {
    const float* from = rows.x.data<float>() + (b * from_rows + strip.begin - rows.first) * row;
    std::copy_n(from, (strip.end - strip.begin) * row,
                picture_.data<float>() + (b * picture_.shape(1) + strip.begin) * row);
  }
  pending_.reset();
}

}  // namespace mere
