// A Layout is how pictures lie in a batch: their size, what their values become
// and whether a pixel's channels are next to each other.
//
// Thread safety: plain values; put_line() writes only to `out`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

struct Layout {
  int height = 0;
  int width = 0;
  int channels = 3;  // 1 to 4
  bool channels_first = false;
  // What values become: 256 items of `item_bytes` for each channel; null for
  // bytes as they are.
  const std::byte* table = nullptr;
  std::size_t item_bytes = 1;  // 1, 2 or 4

  // How many values a line of a picture has.
  [[nodiscard]] std::size_t line_values() const noexcept {
    return static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  }
  [[nodiscard]] std::size_t picture_bytes() const noexcept {
    return static_cast<std::size_t>(height) * line_values() * item_bytes;
  }
  // True if pictures are bytes as resizing gives them.
  [[nodiscard]] bool plain() const noexcept {
    return table == nullptr && (!channels_first || channels == 1);
  }
};

// Writes line `y`, of line_values() bytes, to where it belongs in a picture.
void put_line(const Layout& layout, const std::uint8_t* line, int y,
              std::byte* picture);

}  // namespace gristmill
