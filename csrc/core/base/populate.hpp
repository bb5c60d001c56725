// Gives ranges of a shared mapping pages before they are written: where there
// is no memory, a write to a page that is not there raises SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gristmill {

// Gives `bytes` at `offset` of the mapping at `base` pages.  `fd` is the file
// that is mapped there, or -1; without it kernels before Linux 5.14 refuse.
// Returns true iff all of them have pages now.
[[nodiscard]] bool populate(std::byte* base, int fd, std::uint64_t offset,
                            std::uint64_t bytes) noexcept;

}  // namespace gristmill
