// A record that is compressed with zstd: no frame, if it is empty, or one.
//
// Thread safety: any thread may call any function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.hpp"

namespace gristmill {

// Returns how large a record is, which takes decompressing it if its frame does
// not say.
Result<std::uint64_t> zstd_record_size(std::span<const std::byte> record);

// Decompresses a record to memory of its size.
Status read_zstd_record(std::span<const std::byte> record,
                        std::span<std::byte> to);

}  // namespace gristmill
