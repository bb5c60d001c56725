#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/crc32c.hpp"
#include "core/check.hpp"

namespace gristmill {
namespace {

using Bytes = std::vector<std::byte>;
using Function = std::uint32_t (*)(std::span<const std::byte>,
                                   std::uint32_t) noexcept;

Bytes noise(std::size_t size) {
  Bytes bytes(size);
  std::uint32_t state = 7;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

// Computes the checksum bit by bit, as it is defined.
std::uint32_t by_bits(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    }
  }
  return ~crc;
}

void test_values_equal_published_ones(Function crc) {
  const auto of_text = [&](std::string_view text) {
    return crc(std::as_bytes(std::span(text)), 0);
  };
  CHECK_EQ(of_text(""), 0u);
  CHECK_EQ(of_text("a"), 0xc1d04330u);
  CHECK_EQ(of_text("123456789"), 0xe3069283u);
  // RFC 3720, B.4.
  Bytes bytes(32);
  CHECK_EQ(crc(bytes, 0), 0x8a9136aau);
  std::ranges::fill(bytes, std::byte{0xff});
  CHECK_EQ(crc(bytes, 0), 0x62a8ab43u);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  CHECK_EQ(crc(bytes, 0), 0x46dd794eu);
  std::ranges::reverse(bytes);
  CHECK_EQ(crc(bytes, 0), 0x113fdb5cu);
  Bytes command(48);
  for (const auto& [at, value] : {std::pair{0, 0x01},
                                  {1, 0xc0},
                                  {16, 0x14},
                                  {22, 0x04},
                                  {27, 0x14},
                                  {31, 0x18},
                                  {32, 0x28},
                                  {40, 0x02}}) {
    command[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
  }
  CHECK_EQ(crc(command, 0), 0xd9963a56u);
}

void test_any_length_and_alignment_equals_definition(Function crc) {
  const Bytes bytes = noise(420);
  for (std::size_t begin = 0; begin < 17; ++begin) {
    for (std::size_t size = 0; begin + size <= bytes.size(); ++size) {
      const auto part = std::span(bytes).subspan(begin, size);
      CHECK_EQ(crc(part, 0), by_bits(part));
    }
  }
  for (const std::size_t size :
       {3071u, 3072u, 3073u, 3263u, 3264u, 6144u, 10007u, 100000u}) {
    const Bytes longer = noise(size);
    CHECK_EQ(crc(longer, 0), by_bits(longer));
  }
}

void test_pieces_equal_whole(Function crc) {
  const Bytes bytes = noise(2000);
  const std::uint32_t whole = by_bits(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto all = std::span<const std::byte>(bytes);
    CHECK_EQ(crc(all.subspan(cut), crc(all.first(cut), 0)), whole);
  }
}

void test_three_at_once_equal_single() {
  const Bytes bytes = noise(3 * 4096 + 3);
  const auto all = std::span<const std::byte>(bytes);
  for (const std::size_t size : {0u, 1u, 7u, 8u, 63u, 4096u, 4097u}) {
    const auto found = crc32c_of_three(
        {all.first(size), all.subspan(size, size), all.subspan(2 * size, size)},
        {1, 0, 0xffffffff});
    CHECK_EQ(found[0], crc32c(all.first(size), 1));
    CHECK_EQ(found[1], crc32c(all.subspan(size, size), 0));
    CHECK_EQ(found[2], crc32c(all.subspan(2 * size, size), 0xffffffff));
  }
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::test_three_at_once_equal_single();
  for (const auto crc : {gristmill::crc32c, gristmill::crc32c_portable}) {
    gristmill::test_values_equal_published_ones(crc);
    gristmill::test_any_length_and_alignment_equals_definition(crc);
    gristmill::test_pieces_equal_whole(crc);
  }
}
