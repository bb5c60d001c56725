// The frame of a record in a TFRecord file.
//
// A record has a head, data and a tail.  The head is the length of the data
// (u64) and the checksum of this length (u32).  The tail is the checksum of the
// data (u32).  All are little-endian.  The file consists of records without
// gaps.  A checksum is the CRC-32C, rotated, plus a constant.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/status.hpp"
#include "core/base/varint.hpp"

namespace gristmill {

inline constexpr std::size_t kFrameHead = 12;
inline constexpr std::size_t kFrameTail = 4;
inline constexpr std::size_t kFrameBytes = kFrameHead + kFrameTail;

// Returns the checksum of `bytes` in the form in which the file stores it.
[[nodiscard]] std::uint32_t frame_checksum(
    std::span<const std::byte> bytes) noexcept;

// Returns the length in a head.
[[nodiscard]] inline std::uint64_t frame_length(
    std::span<const std::byte> head) noexcept {
  return load_le<std::uint64_t>(head.data());
}

// Compares the length in a head with its checksum.
// REQUIRES: head.size() == kFrameHead.
Status check_frame_length(std::span<const std::byte> head);

// Compares data with the checksum in the tail.
// REQUIRES: tail.size() == kFrameTail.
Status check_frame_data(std::span<const std::byte> data,
                        std::span<const std::byte> tail);

// Returns "GZIP" or "ZLIB" if a file that begins with these bytes seems to be
// compressed, else "".
[[nodiscard]] std::string_view frame_compression(
    std::span<const std::byte> begin) noexcept;

// Returns an error about record number `record`, which begins at `offset`.
template <class... Parts>
Status damaged_record(std::uint64_t record, std::uint64_t offset,
                      const Parts&... parts) {
  return Status(Code::kInvalidArgument, "record ", record, " at offset ",
                offset, ": ", parts...);
}

// Returns the error for a record with `length` bytes of data if only `left`
// bytes of the record, including its head, are in the file.
Status truncated_record(std::uint64_t record, std::uint64_t offset,
                        std::uint64_t left, std::uint64_t length);

}  // namespace gristmill
