#include "core/base/crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define GRISTMILL_CRC32C __attribute__((target("sse4.2")))
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define GRISTMILL_CRC32C __attribute__((target("+crc")))
#endif

namespace gristmill {
namespace {

static_assert(std::endian::native == std::endian::little);

// The polynomial in reflected form, like all numbers here.
constexpr std::uint32_t kPolynomial = 0x82f63b78;

// The CRC of each byte value.
constexpr auto kRemainders = [] {
  std::array<std::uint32_t, 256> remainders{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    }
    remainders[byte] = value;
  }
  return remainders;
}();

std::uint32_t update_portable(std::uint32_t crc,
                              std::span<const std::byte> bytes) noexcept {
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^
          kRemainders[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  }
  return crc;
}

#if defined(GRISTMILL_CRC32C)

#if defined(__x86_64__)
GRISTMILL_CRC32C std::uint32_t add(std::uint32_t crc, std::uint64_t word) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
}
GRISTMILL_CRC32C std::uint32_t add(std::uint32_t crc, std::byte byte) {
  return _mm_crc32_u8(crc, std::to_integer<std::uint8_t>(byte));
}
bool is_supported() { return __builtin_cpu_supports("sse4.2") != 0; }
#else
GRISTMILL_CRC32C std::uint32_t add(std::uint32_t crc, std::uint64_t word) {
  return __crc32cd(crc, word);
}
GRISTMILL_CRC32C std::uint32_t add(std::uint32_t crc, std::byte byte) {
  return __crc32cb(crc, std::to_integer<std::uint8_t>(byte));
}
bool is_supported() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

GRISTMILL_CRC32C std::uint32_t update_fast(
    std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  std::uint64_t word = 0;
  while (bytes.size() >= sizeof word) {
    std::memcpy(&word, bytes.data(), sizeof word);
    crc = add(crc, word);
    bytes = bytes.subspan(sizeof word);
  }
  for (const std::byte byte : bytes) crc = add(crc, byte);
  return crc;
}

// Updates three CRCs with the whole words of three pieces of equal size.
GRISTMILL_CRC32C void update_words(
    std::array<std::uint32_t, 3>& crcs,
    const std::array<std::span<const std::byte>, 3>& pieces) noexcept {
  auto [a, b, c] = crcs;
  std::array<std::uint64_t, 3> words{};
  for (std::size_t at = 0; at + 8 <= pieces[0].size(); at += 8) {
    std::memcpy(&words[0], pieces[0].data() + at, 8);
    std::memcpy(&words[1], pieces[1].data() + at, 8);
    std::memcpy(&words[2], pieces[2].data() + at, 8);
    a = add(a, words[0]);
    b = add(b, words[1]);
    c = add(c, words[2]);
  }
  crcs = {a, b, c};
}

const bool kFast = is_supported();
const auto update_best = kFast ? update_fast : update_portable;

#else
constexpr bool kFast = false;
constexpr auto update_best = update_portable;
void update_words(std::array<std::uint32_t, 3>&,
                  const std::array<std::span<const std::byte>, 3>&) noexcept {}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes,
                     std::uint32_t prefix_crc) noexcept {
  return ~update_best(~prefix_crc, bytes);
}

std::array<std::uint32_t, 3> crc32c_of_three(
    const std::array<std::span<const std::byte>, 3>& pieces,
    std::array<std::uint32_t, 3> prefix_crcs) noexcept {
  std::array<std::uint32_t, 3> crcs = prefix_crcs;
  for (std::uint32_t& crc : crcs) crc = ~crc;
  std::size_t updated = 0;  // Bytes of each piece.
  if (kFast) {
    update_words(crcs, pieces);
    updated = pieces[0].size() / 8 * 8;
  }
  for (std::size_t k = 0; k < 3; ++k) {
    crcs[k] = ~update_best(crcs[k], pieces[k].subspan(updated));
  }
  return crcs;
}

std::uint32_t crc32c_portable(std::span<const std::byte> bytes,
                              std::uint32_t prefix_crc) noexcept {
  return ~update_portable(~prefix_crc, bytes);
}

}  // namespace gristmill
