// CRC-32C (Castagnoli), the checksum that TFRecord files carry.
//
// It runs at some 8 GB/s where the processor has instructions for it, which is
// found out at run time, and at 0.5 GB/s elsewhere.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gristmill {

// The CRC-32C of `bytes`, or, where `before` is that of some bytes, of those
// and `bytes` behind them.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t before = 0) noexcept;

// Those of three pieces of one size, each as of crc32c(): in half the time,
// since none waits for the others.
[[nodiscard]] std::array<std::uint32_t, 3> crc32c_of_three(
    const std::array<std::span<const std::byte>, 3>& pieces,
    std::array<std::uint32_t, 3> before) noexcept;

// The same, without instructions for it.
[[nodiscard]] std::uint32_t crc32c_portable(std::span<const std::byte> bytes,
                                            std::uint32_t before = 0) noexcept;

}  // namespace gristmill
