#include "core/base/utf8.hpp"

#include <cstddef>

namespace gristmill {
namespace {

using Byte = unsigned char;

// How many bytes follow the first of a character, and between which the next
// of them lies; those after it are any continuation bytes.
struct Form {
  std::size_t following = 0;
  Byte lowest = 0x80;
  Byte highest = 0xbf;
};

// Returns a form of no bytes for those that begin no character of several.
constexpr Form form_of(Byte first) noexcept {
  if (first < 0xc2 || first > 0xf4) return {};
  if (first < 0xe0) return {.following = 1};
  if (first == 0xe0) return {.following = 2, .lowest = 0xa0};
  if (first == 0xed) return {.following = 2, .highest = 0x9f};
  if (first < 0xf0) return {.following = 2};
  if (first == 0xf0) return {.following = 3, .lowest = 0x90};
  if (first == 0xf4) return {.following = 3, .highest = 0x8f};
  return {.following = 3};
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto first = static_cast<Byte>(text[at]);
    if (first < 0x80) continue;
    const Form form = form_of(first);
    if (form.following == 0 || form.following >= text.size() - at) return false;
    for (std::size_t i = 1; i <= form.following; ++i) {
      const auto byte = static_cast<Byte>(text[at + i]);
      const Byte lowest = i == 1 ? form.lowest : Byte{0x80};
      const Byte highest = i == 1 ? form.highest : Byte{0xbf};
      if (byte < lowest || byte > highest) return false;
    }
    at += form.following;
  }
  return true;
}

}  // namespace gristmill
