#include "core/images/layout.hpp"

#include <cstring>

namespace gristmill {
namespace {

std::size_t size_of(int number) { return static_cast<std::size_t>(number); }

// Looks up `count` values, every `step`th at `in`, and writes the results to
// every `out_step`th item at `out`.
template <class Item>
void look_up(const std::uint8_t* in, std::size_t count, std::size_t step,
             const std::byte* table, std::byte* out, std::size_t out_step) {
  for (std::size_t x = 0; x < count; ++x) {
    std::memcpy(out + x * out_step * sizeof(Item),
                table + in[x * step] * sizeof(Item), sizeof(Item));
  }
}

// Writes one line of the channel that begins at `in`.
void put_channel(const Layout& layout, const std::uint8_t* in,
                 const std::byte* table, std::byte* out) {
  const std::size_t count = size_of(layout.width);
  const std::size_t step = size_of(layout.channels);
  const std::size_t out_step = layout.channels_first ? 1 : step;
  if (table == nullptr) {
    for (std::size_t x = 0; x < count; ++x) {
      out[x * out_step] = static_cast<std::byte>(in[x * step]);
    }
  } else if (layout.item_bytes == 1) {
    look_up<std::uint8_t>(in, count, step, table, out, out_step);
  } else if (layout.item_bytes == 2) {
    look_up<std::uint16_t>(in, count, step, table, out, out_step);
  } else {
    look_up<std::uint32_t>(in, count, step, table, out, out_step);
  }
}

}  // namespace

void put_line(const Layout& layout, const std::uint8_t* line, int y,
              std::byte* picture) {
  const std::size_t bytes = layout.item_bytes;
  if (layout.is_plain()) {
    std::memcpy(picture + size_of(y) * layout.line_values(), line,
                layout.line_values());
    return;
  }
  for (int c = 0; c < layout.channels; ++c) {
    const std::size_t first =
        layout.channels_first
            ? size_of(c * layout.height + y) * size_of(layout.width)
            : size_of(y) * layout.line_values() + size_of(c);
    const std::byte* const table =
        layout.table == nullptr ? nullptr
                                : layout.table + size_of(c) * 256 * bytes;
    put_channel(layout, line + c, table, picture + first * bytes);
  }
}

}  // namespace gristmill
