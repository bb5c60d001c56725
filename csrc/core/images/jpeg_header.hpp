// What a JPEG file says of its picture before the pixels: size and orientation.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

struct JpegHeader {
  int height = 0;  // As stored, before it is turned.
  int width = 0;
  int channels = 0;     // 1 or 3
  int orientation = 1;  // EXIF's, 1 to 8; XMP's where EXIF has none
};

// Returns what the markers before the first scan say; nothing for what is no
// JPEG file, or one that JpegDecoder does not read: of other than 8 bits, other
// than 1 or 3 components, lossless or arithmetically coded.
Result<std::optional<JpegHeader>> read_jpeg_header(
    std::span<const std::byte> file);

}  // namespace gristmill
