// Checks whether bytes are valid UTF-8.
//
// Thread safety: a plain function of its argument.
#pragma once

#include <cstddef>
#include <string_view>

namespace gristmill {

// Returns true iff `text` is valid UTF-8: no overlong forms, no surrogates, and
// no code points above U+10FFFF.
[[nodiscard]] inline bool is_utf8(std::string_view text) noexcept {
  using Byte = unsigned char;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto first = static_cast<Byte>(text[at]);
    if (first < 0x80) continue;
    if (first < 0xc2 || first > 0xf4) return false;
    const std::size_t following = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if (following >= text.size() - at) return false;
    // The valid range of the second byte.  The bytes after it may be any
    // continuation bytes.
    Byte lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    Byte highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    for (std::size_t i = 1; i <= following; ++i) {
      const auto byte = static_cast<Byte>(text[at + i]);
      if (byte < lowest || byte > highest) return false;
      lowest = 0x80;
      highest = 0xbf;
    }
    at += following;
  }
  return true;
}

}  // namespace gristmill
