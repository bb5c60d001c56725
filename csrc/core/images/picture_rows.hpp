// PictureRows are the rows of a rectangle of a picture, as pixels of 4 bytes,
// from a JPEG file or from memory, and turned as EXIF's orientation says.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.hpp"
#include "core/images/box.hpp"
#include "core/images/jpeg_decoder.hpp"

namespace gristmill {

// Where a picture comes from; what it refers to outlives the reading.
struct Picture {
  std::span<const std::byte> file;       // A JPEG file, if `pixels` is null.
  const std::uint8_t* pixels = nullptr;  // Of shape (height, width, channels).
  int height = 0;
  int width = 0;
};

class PictureRows {
 public:
  // Reads the size of a picture; `channels` is how many bytes of each pixel are
  // filled, of the gray value if that is 1.
  // REQUIRES: 1 <= channels <= 4; 1 <= orientation <= 8.
  Status open(const Picture& picture, int channels, int orientation);

  // The size of the picture once it is turned.
  [[nodiscard]] int height() const noexcept { return height_; }
  [[nodiscard]] int width() const noexcept { return width_; }

  // True if it can be decoded at a smaller size.
  [[nodiscard]] bool shrinks() const noexcept {
    return picture_.pixels == nullptr;
  }

  // Goes to the first row of a rectangle of the turned picture at 1 / `shrink`
  // of its size, and sees to it that `slack` bytes can be read behind each row.
  // REQUIRES: as JpegDecoder::start(); shrink is 1 unless shrinks().
  Status start(const Box& box, int shrink, std::size_t slack);

  // Returns the next row of it, in memory that stays until the next call.
  // REQUIRES: start() succeeded; fewer than box.height rows were read.
  Result<const std::uint8_t*> next();

  // Ends the picture; see JpegDecoder::finish().
  Status finish();

 private:
  Status start_stored(const Box& box, int shrink, std::size_t slack);
  Result<const std::uint8_t*> next_stored();
  Status turn(const Box& stored);

  JpegDecoder decoder_;
  Picture picture_;
  int channels_ = 0;
  int orientation_ = 1;
  int height_ = 0;
  int width_ = 0;
  Box box_;                           // Of the rows, as stored or turned.
  int next_ = 0;                      // Which is next.
  std::vector<std::uint8_t> row_;     // Of a picture in memory.
  std::vector<std::uint8_t> turned_;  // The whole rectangle, if it is turned.
};

}  // namespace gristmill
