// How a TFRecord file frames each record.
//
// A record is a head, its data and a tail.  The head is the length of the data
// (u64) and its checksum (u32), the tail the checksum of the data (u32), all
// little-endian.  Records follow each other from the first byte to the last;
// nothing else is in the file.  A checksum is the CRC-32C, rotated and shifted
// by a constant.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/status.hpp"

namespace gristmill {

inline constexpr std::size_t kFrameHead = 12;
inline constexpr std::size_t kFrameTail = 4;
inline constexpr std::size_t kFrameBytes = kFrameHead + kFrameTail;

// The checksum of `bytes` as the file has it.
[[nodiscard]] std::uint32_t frame_checksum(
    std::span<const std::byte> bytes) noexcept;

// Returns the length in a head, once its checksum is found right.
// REQUIRES: head.size() == kFrameHead.
Result<std::uint64_t> frame_length(std::span<const std::byte> head);

// Compares data with the checksum in their tail.
// REQUIRES: tail.size() == kFrameTail.
Status check_frame_data(std::span<const std::byte> data,
                        std::span<const std::byte> tail);

// Returns "GZIP" or "ZLIB" if a file that begins with these bytes seems to be
// compressed, else "".
[[nodiscard]] std::string_view frame_compression(
    std::span<const std::byte> begin) noexcept;

}  // namespace gristmill
