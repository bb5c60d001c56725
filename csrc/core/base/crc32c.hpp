// CRC-32C (Castagnoli), the checksum of TFRecord files.
//
// It processes about 8 GB/s if the processor has instructions for it, which is
// checked at run time, and 0.5 GB/s otherwise.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gristmill {

// Returns the CRC-32C of `bytes`.  If `prefix_crc` is the CRC-32C of the bytes
// before them, returns that of the concatenation.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t prefix_crc = 0) noexcept;

// Returns crc32c() of three pieces of equal size.  Takes half the time of three
// calls, because the three computations overlap.
[[nodiscard]] std::array<std::uint32_t, 3> crc32c_of_three(
    const std::array<std::span<const std::byte>, 3>& pieces,
    std::array<std::uint32_t, 3> prefix_crcs) noexcept;

// Like crc32c(), but without special instructions.
[[nodiscard]] std::uint32_t crc32c_portable(
    std::span<const std::byte> bytes, std::uint32_t prefix_crc = 0) noexcept;

}  // namespace gristmill
