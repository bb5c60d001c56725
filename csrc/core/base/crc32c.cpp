#include "core/base/crc32c.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace gristmill {
namespace {

static_assert(std::endian::native == std::endian::little);

// The polynomial, lowest power in the highest bit, as all numbers here.
constexpr std::uint32_t kPolynomial = 0x82f63b78;
constexpr std::size_t kWord = sizeof(std::uint64_t);

constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
}

std::uint64_t load_word(const std::byte* from) noexcept {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// kSlices[k][b] is the remainder of byte b with k zero bytes behind it.
using Slices = std::array<std::array<std::uint32_t, 256>, kWord>;
constexpr Slices kSlices = [] {
  Slices slices{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t value = b;
    for (int bit = 0; bit < 8; ++bit) value = times_x(value);
    slices[0][b] = value;
  }
  for (std::size_t k = 1; k < kWord; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t value = slices[k - 1][b];
      slices[k][b] = (value >> 8) ^ slices[0][value & 0xff];
    }
  }
  return slices;
}();

std::uint32_t update_portable(std::uint32_t crc, const std::byte* from,
                              std::size_t count) noexcept {
  for (; count >= kWord; from += kWord, count -= kWord) {
    const std::uint64_t word = load_word(from) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < kWord; ++k) {
      crc ^= kSlices[kWord - 1 - k][(word >> (8 * k)) & 0xff];
    }
  }
  for (; count > 0; ++from, --count) {
    crc = (crc >> 8) ^
          kSlices[0][(crc ^ std::to_integer<std::uint32_t>(*from)) & 0xff];
  }
  return crc;
}

#if defined(__x86_64__)

// One instruction takes three cycles, but three may be under way: long runs are
// cut in three lanes of equally many words.
constexpr std::size_t kMinLane = 8;
constexpr std::size_t kMaxLane = 128;

// kSkips[w] moves a remainder over w words of zeros: it is x^(64 w - 33).  The
// product of two reflected numbers has one power of x more, and the instruction
// that reduces it 32.
constexpr auto kSkips = [] {
  std::array<std::uint32_t, 2 * kMaxLane + 1> skips{};
  std::uint32_t power = std::uint32_t{1} << 31;  // x^0
  for (std::size_t exponent = 1; exponent <= 64 * 2 * kMaxLane - 33;
       ++exponent) {
    power = times_x(power);
    if ((exponent + 33) % 64 == 0) skips[(exponent + 33) / 64] = power;
  }
  return skips;
}();

__attribute__((target("sse4.2,pclmul"))) std::uint64_t product(
    std::uint64_t crc, std::uint32_t skip) noexcept {
  const __m128i left = _mm_cvtsi64_si128(static_cast<long long>(crc));
  const __m128i right = _mm_cvtsi32_si128(static_cast<int>(skip));
  return static_cast<std::uint64_t>(
      _mm_cvtsi128_si64(_mm_clmulepi64_si128(left, right, 0)));
}

__attribute__((target("sse4.2,pclmul"))) std::uint32_t update_sse42(
    std::uint32_t before, const std::byte* from, std::size_t count) noexcept {
  std::uint64_t crc = before;
  while (count >= 3 * kMinLane * kWord) {
    const std::size_t words = std::min(count / (3 * kWord), kMaxLane);
    const std::size_t lane = words * kWord;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (const std::byte* const end = from + lane; from < end; from += kWord) {
      crc = _mm_crc32_u64(crc, load_word(from));
      second = _mm_crc32_u64(second, load_word(from + lane));
      third = _mm_crc32_u64(third, load_word(from + 2 * lane));
    }
    const std::uint64_t moved =
        product(crc, kSkips[2 * words]) ^ product(second, kSkips[words]);
    crc = _mm_crc32_u64(0, moved) ^ third;
    from += 2 * lane;
    count -= 3 * lane;
  }
  for (; count >= kWord; from += kWord, count -= kWord) {
    crc = _mm_crc32_u64(crc, load_word(from));
  }
  auto last = static_cast<std::uint32_t>(crc);
  for (; count > 0; ++from, --count) {
    last = _mm_crc32_u8(last, std::to_integer<std::uint8_t>(*from));
  }
  return last;
}

auto pick_update() noexcept {
  const bool fast = __builtin_cpu_supports("sse4.2") != 0 &&
                    __builtin_cpu_supports("pclmul") != 0;
  return fast ? update_sse42 : update_portable;
}

#elif defined(__aarch64__) && defined(__linux__)

__attribute__((target("+crc"))) std::uint32_t update_arm(
    std::uint32_t crc, const std::byte* from, std::size_t count) noexcept {
  for (; count >= kWord; from += kWord, count -= kWord) {
    crc = __crc32cd(crc, load_word(from));
  }
  for (; count > 0; ++from, --count) {
    crc = __crc32cb(crc, std::to_integer<std::uint8_t>(*from));
  }
  return crc;
}

auto pick_update() noexcept {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? update_arm
                                                  : update_portable;
}

#else

auto pick_update() noexcept { return update_portable; }

#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes,
                     std::uint32_t before) noexcept {
  static const auto update = pick_update();
  return ~update(~before, bytes.data(), bytes.size());
}

std::uint32_t crc32c_portable(std::span<const std::byte> bytes,
                              std::uint32_t before) noexcept {
  return ~update_portable(~before, bytes.data(), bytes.size());
}

}  // namespace gristmill
