// Replaces a file that other processes may be reading.
//
// Thread safety: pure functions.  If several processes replace the same file at
// the same time, the last one wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/base/status.hpp"

namespace gristmill {

// Writes the parts to a temporary file in the same folder and renames it to
// `path`, so that readers never see an incomplete file.  Creates the folder if
// necessary.
Status replace_file(const std::string& path,
                    std::initializer_list<std::span<const std::byte>> parts);

// Fails if a file of `bytes` bytes would take more than a quarter of the free
// space.  For files that can be computed again.
Status check_free_space(const std::string& path, std::uint64_t bytes);

}  // namespace gristmill
