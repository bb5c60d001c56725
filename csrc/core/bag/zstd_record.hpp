// Functions for a record that is compressed with zstd.  It has one frame, or
// no bytes if it is empty.
//
// Thread safety: any thread may call any function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

// Returns the size of a record after decompression.  Decompresses the record
// if its frame does not contain the size.
Result<std::uint64_t> zstd_record_size(std::span<const std::byte> record);

// Decompresses a record into `to`, which must have its size.
Status read_zstd_record(std::span<const std::byte> record,
                        std::span<std::byte> to);

}  // namespace gristmill
