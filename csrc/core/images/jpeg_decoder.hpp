// A JpegDecoder decodes rectangles of pictures in JPEG files with
// libjpeg-turbo, one file after another.  The pixels are the same as if the
// whole picture were decoded.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/base/status.hpp"
#include "core/images/box.hpp"

namespace gristmill {

class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Reads the header of a file.  The bytes must stay valid until finish() or
  // the next open().
  Status open(std::span<const std::byte> file);

  // The size of the picture as stored.
  [[nodiscard]] int height() const noexcept;
  [[nodiscard]] int width() const noexcept;

  // Moves to the first row of a rectangle of the picture at 1 / `shrink` of its
  // size, rounded up.  At least `slack` bytes can be read past the end of each
  // row.  REQUIRES: open() succeeded; shrink is 1, 2, 4 or 8; the box is not
  // empty and within the picture of that size.
  Status start(const Box& box, int shrink, std::size_t slack);

  // Decodes the next row of the rectangle: box.width pixels of 4 bytes, the
  // last of which is 255.  The caller may change this memory; it is valid until
  // the next call.
  // REQUIRES: start() succeeded; fewer than box.height rows were read.
  Result<std::uint8_t*> next_row();

  // Finishes the file.  If the file does not end with an end marker, decodes
  // the rest of it and fails if data is missing, because libjpeg may have made
  // up part of the rectangle.
  Status finish();

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace gristmill
