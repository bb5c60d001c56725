// The file that keeps the ends of the windows of a plan: the number of rows up
// to the end of each.  It saves counting the rows again.
//
// All numbers are little-endian.  A plan ignores a file that is damaged or of
// another plan, and replaces it:
//
//   offset  bytes
//        0      8  "GRISTMWE"
//        8      4  version of this format, 1
//       12      4  CRC-32C of everything that follows
//       16      8  key: hash of the lengths and options of the plan
//       24     8n  ends of the first n windows, ascending
//
// Thread safety: pure functions.  Several processes may read and replace the
// same file at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.hpp"

namespace gristmill {

// Returns the ends in `bytes`, the contents of a file.  Fails with
// kInvalidArgument if they are damaged, or have another version or key.
Result<std::vector<std::int64_t>> parse_window_ends(
    std::span<const std::byte> bytes, std::uint64_t key);

// Returns the ends in the file at `path`.  Fails like parse_window_ends(), and
// with kSystem if the file cannot be read.
Result<std::vector<std::int64_t>> load_window_ends(const std::string& path,
                                                   std::uint64_t key);

// Replaces the file at `path`.  Creates the folder if necessary.
Status save_window_ends(const std::string& path, std::uint64_t key,
                        std::span<const std::int64_t> ends);

}  // namespace gristmill
