// Pictures that are read and written in strips of rows, for layers whose activations would not fit
// as a whole.
//
// A convolution reads beyond the rows that it gives. A strip is therefore read with a halo, and
// what it gives counts only for its own rows: those are what the whole picture would give.
#pragma once

#include <optional>
#include <vector>

#include "kernels/norm.h"
#include "tensor/tensor.h"

namespace mere {

struct Strip {
  int begin, end;  // rows
};

// Strips of `rows` rows, the last one of what is left.
std::vector<Strip> strips_of(int height, int rows);

// What a layer makes of the rows around a strip.
struct StripRows {
  Array x;    // [B, h, W, C]
  int first;  // the picture's row that x begins with
  // The strip's own rows in x.
  PixelRect own(const Strip& strip) const {
    return {strip.begin - first, 0, strip.end - strip.begin, x.shape(2)};
  }
};

// Mean and variance of a group norm over the picture, from those of strips (group_moments).
class PooledMoments {
 public:
  // Computes the moments of the strip's own rows.
  void add(const StripRows& rows, const Strip& strip, int groups);
  Array value() const;  // [B, groups, 2]

 private:
  struct Part {
    int rows;
    Array moments;
  };
  std::vector<Part> parts_;
};

// A picture in memory whose rows are replaced strip by strip, from the top. A strip is written when
// the next one comes, so that the rows above a strip can still be read as they were.
class StripPicture {
 public:
  explicit StripPicture(const mx::Shape& shape);  // [B, H, W, C]; contents undefined
  // A copy of rows [begin - halo, end + halo), where the picture has them.
  StripRows read(const Strip& strip, int halo) const;
  // Computes `rows` and takes the strip's own ones.
  void write(const StripRows& rows, const Strip& strip);
  // After the last strip.
  void finish();
  const Array& array() const { return picture_; }

 private:
  struct Pending {
    StripRows rows;
    Strip strip;
  };
  Array picture_;
  std::optional<Pending> pending_;
};

// Rows [begin, end) of a picture [B, H, W, C], copied.
Array rows_of(const Array& picture, int begin, int end);

}  // namespace mere
