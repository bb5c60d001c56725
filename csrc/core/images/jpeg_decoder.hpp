// A JpegDecoder decodes a rectangle of the pictures in JPEG files, one file
// after another, by libjpeg-turbo.  Pixels are those that decoding the whole
// picture gives.
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

  // Reads the header of a file, which stays where it is until finish() or the
  // next open().
  Status open(std::span<const std::byte> file);

  // The size of the picture as stored.
  [[nodiscard]] int height() const noexcept;
  [[nodiscard]] int width() const noexcept;

  // Goes to the first row of a rectangle of the picture at 1 / `shrink` of its
  // size, rounded up, and sees to it that `slack` bytes can be read behind each
  // row.  REQUIRES: open() succeeded; shrink is 1, 2, 4 or 8; the box is not
  // empty and within the picture of that size.
  Status start(const Box& box, int shrink, std::size_t slack);

  // Decodes the next row of it: box.width pixels of 4 bytes, the last of which
  // is 255, in memory that the caller may change until the next call.
  // REQUIRES: start() succeeded; fewer than box.height rows were read.
  Result<std::uint8_t*> next_row();

  // Ends the file.  A file that does not end as it should is decoded to its
  // end, because part of the rectangle may have been made up.
  Status finish();

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace gristmill
