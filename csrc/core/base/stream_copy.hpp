// Copies to memory that will not be read soon, past the caches.
//
// An ordinary copy first reads the lines that it is about to write, and drives
// what is in use from the caches.
//
// Thread safety: a plain function; another thread that is told that the copy
// is done, by any means, sees it.
#pragma once

#include <cstddef>

namespace gristmill {

// Copies `size` bytes.  REQUIRES: the two do not overlap.
void stream_copy(std::byte* to, const std::byte* from,
                 std::size_t size) noexcept;

}  // namespace gristmill
