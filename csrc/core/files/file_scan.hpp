// Reads a file from the beginning to the end, in windows.
//
// Thread safety: any thread may call this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/head_reader.hpp"

namespace gristmill {

// Called with the offset of each window in the file, and with its bytes.
using VisitWindow =
    std::function<Status(std::uint64_t, std::span<const std::byte>)>;

// Calls `visit` with the bytes of the file from `begin` on.  All windows but
// the last one have the same size, a multiple of 8.  Updates
// progress.done_bytes.  Stops at the first error, and with the error ECANCELED
// if `progress` is cancelled.
Status scan_file(const File& file, std::uint64_t begin, ScanProgress& progress,
                 const VisitWindow& visit);

}  // namespace gristmill
