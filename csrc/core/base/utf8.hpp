// Says whether bytes are text.
//
// Thread safety: a plain function of its argument.
#pragma once

#include <string_view>

namespace gristmill {

// Returns true iff `text` is UTF-8: no overlong forms, no surrogates, nothing
// above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

}  // namespace gristmill
