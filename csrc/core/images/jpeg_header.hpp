// Reads the size and the orientation of a JPEG file's picture from its header.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

struct JpegHeader {
  int height = 0;  // As stored, before the orientation is applied.
  int width = 0;
  int channels = 0;     // 1 or 3
  int orientation = 1;  // EXIF's, 1 to 8; XMP's if EXIF has none
};

// Reads the markers before the first scan.  Returns nullopt if `file` is not a
// JPEG file, or if JpegDecoder does not support it.  It supports 8 bits, 1 or 3
// components, and lossy compression with Huffman codes.
Result<std::optional<JpegHeader>> read_jpeg_header(
    std::span<const std::byte> file);

}  // namespace gristmill
