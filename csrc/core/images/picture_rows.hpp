// PictureRows returns the rows of a rectangle of a picture as pixels of 4
// bytes.  It reads a JPEG file or pixels in memory, and turns the picture by
// EXIF's orientation.
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

// The source of a picture.  The file or pixels must outlive the reading.
struct Picture {
  std::span<const std::byte> file;       // A JPEG file, if `pixels` is null.
  const std::uint8_t* pixels = nullptr;  // Of shape (height, width, channels).
  int height = 0;
  int width = 0;
};

class PictureRows {
 public:
  // Reads the size of a picture.  `channels` is the number of bytes to fill in
  // each pixel.  If it is 1, this byte is the gray value.
  // REQUIRES: 1 <= channels <= 4; 1 <= orientation <= 8.
  Status open(const Picture& picture, int channels, int orientation);

  // The size of the turned picture.
  [[nodiscard]] int height() const noexcept { return height_; }
  [[nodiscard]] int width() const noexcept { return width_; }

  // Returns whether the picture can be decoded at a smaller size.
  [[nodiscard]] bool can_shrink() const noexcept {
    return picture_.pixels == nullptr;
  }

  // Moves to the first row of a rectangle of the turned picture at 1 / `shrink`
  // of its size.  At least `slack` bytes can be read past the end of each row.
  // REQUIRES: as JpegDecoder::start(); shrink is 1 unless can_shrink().
  Status start(const Box& box, int shrink, std::size_t slack);

  // Returns the next row of the rectangle, valid until the next call.
  // REQUIRES: start() succeeded; fewer than box.height rows were read.
  Result<const std::uint8_t*> next();

  // Finishes the picture; see JpegDecoder::finish().
  Status finish();

 private:
  Status start_stored(const Box& box, int shrink, std::size_t slack);
  Result<const std::uint8_t*> next_stored_row();
  Status orient(const Box& stored);

  JpegDecoder decoder_;
  Picture picture_;
  int channels_ = 0;
  int orientation_ = 1;
  int height_ = 0;
  int width_ = 0;
  // The rectangle: in the stored picture until orient() has run, then in the
  // turned one.
  Box box_;
  int next_row_ = 0;               // The next row of the rectangle.
  std::vector<std::uint8_t> row_;  // A row of a picture in memory.
  // The whole rectangle, unless orientation_ is 1.
  std::vector<std::uint8_t> oriented_pixels_;
};

}  // namespace gristmill
