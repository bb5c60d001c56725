// Writing a file that others may be reading.
//
// Thread safety: pure functions.  Processes may replace one file at the same
// time: one of them is the last.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "core/base/status.hpp"

namespace gristmill {

// Writes the parts to a temporary name in the same folder and renames it to
// `path`, so that nobody sees half of it.  Makes the folder if there is none.
Status replace_file(const std::string& path,
                    std::initializer_list<std::span<const std::byte>> parts);

}  // namespace gristmill
