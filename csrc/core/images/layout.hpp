// A Layout describes the pictures of a batch: their size, the conversion of
// their values, and whether a pixel's channels are next to each other.
//
// Thread safety: plain values; put_line() writes only to `picture`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

struct Layout {
  int height = 0;
  int width = 0;
  int channels = 3;  // 1 to 4
  bool channels_first = false;
  // The results for all byte values: 256 items of `item_bytes` for each
  // channel.  If null, values stay bytes.
  const std::byte* table = nullptr;
  std::size_t item_bytes = 1;  // 1, 2 or 4

  // Returns the number of values in a line of a picture.
  [[nodiscard]] std::size_t line_values() const noexcept {
    return static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  }
  [[nodiscard]] std::size_t picture_bytes() const noexcept {
    return static_cast<std::size_t>(height) * line_values() * item_bytes;
  }
  // Returns whether pictures have the same bytes as the output of resizing.
  [[nodiscard]] bool is_plain() const noexcept {
    return table == nullptr && (!channels_first || channels == 1);
  }
};

// Writes line `y`, of line_values() bytes, to its place in a picture.
void put_line(const Layout& layout, const std::uint8_t* line, int y,
              std::byte* picture);

}  // namespace gristmill
