// Reads a file from the beginning to the end, in windows.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/head_reader.hpp"

namespace gristmill {

// Called with each window and its offset in the file.
using VisitWindow =
    std::function<Status(std::uint64_t, std::span<const std::byte>)>;

// Calls `visit` with the bytes of the file from `begin` on.  All windows but
// the last one have the same size, a multiple of 8.  Stops at the first error,
// or if `progress` is cancelled.
Status scan_file(const File& file, std::uint64_t begin, ScanProgress& progress,
                 const VisitWindow& visit);

}  // namespace gristmill
