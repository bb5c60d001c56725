// A ByteCursor reads numbers and runs of bytes from the front of a span.
//
// Methods return false if there are too few bytes.  They never read outside of
// the span.
//
// Thread safety: none; a cursor belongs to one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace gristmill {

// Maximum bytes of a 64-bit varint.
inline constexpr std::size_t kMaxVarint = 10;

// Reads a little-endian number, which may be unaligned.
// REQUIRES: sizeof(T) bytes are readable at `from`.
template <class T>
[[nodiscard]] T load_le(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Returns the number of bytes of `value` as a varint.
[[nodiscard]] constexpr std::size_t varint_bytes(std::uint64_t value) noexcept {
  std::size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// Writes `value` as a varint and returns its end.
// REQUIRES: varint_bytes(value) bytes are writable at `to`.
inline std::byte* put_varint(std::byte* to, std::uint64_t value) noexcept {
  for (; value >= 0x80; value >>= 7) {
    *to++ = static_cast<std::byte>((value & 0x7f) | 0x80);
  }
  *to++ = static_cast<std::byte>(value);
  return to;
}

// Concatenates the 7 low bits of each byte.
[[nodiscard]] constexpr std::uint64_t join_sevens(std::uint64_t word) noexcept {
  word = (word & 0x007f007f007f007f) | (word & 0x7f007f007f007f00) >> 1;
  word = (word & 0x00003fff00003fff) | (word & 0x3fff00003fff0000) >> 2;
  return (word & 0x000000000fffffff) | (word & 0x0fffffff00000000) >> 4;
}

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) noexcept
      : next_(bytes.data()), left_(bytes.size()) {}

  [[nodiscard]] std::size_t left() const noexcept { return left_; }
  [[nodiscard]] std::span<const std::byte> rest() const noexcept {
    return {next_, left_};
  }

  [[nodiscard]] bool byte(std::uint8_t& value) noexcept {
    if (left_ == 0) return false;
    value = std::to_integer<std::uint8_t>(*next_);
    ++next_;
    --left_;
    return true;
  }

  // Reads a varint.  Returns false if it is incomplete or exceeds 64 bits.
  [[nodiscard]] [[gnu::always_inline]] bool varint(
      std::uint64_t& value) noexcept {
    if (left_ > 0 && *next_ < std::byte{0x80}) {  // The most frequent case.
      value = std::to_integer<std::uint64_t>(*next_);
      ++next_;
      --left_;
      return true;
    }
    if (left_ >= sizeof(std::uint64_t)) {
      const auto word = load_le<std::uint64_t>(next_);
      // The high bit of each byte that ends a varint.
      const std::uint64_t ends = ~word & 0x8080808080808080;
      if (ends != 0) {
        // The mask has the bytes up to the first end.
        value = join_sevens(word & (ends ^ (ends - 1)));
        const auto bytes =
            static_cast<std::size_t>(std::countr_zero(ends) + 1) / 8;
        next_ += bytes;
        left_ -= bytes;
        return true;
      }
    }
    std::uint64_t read = 0;
    for (std::size_t i = 0; i < kMaxVarint && i < left_; ++i) {
      const auto bits = std::to_integer<std::uint64_t>(next_[i]);
      if (i == kMaxVarint - 1 && bits > 1) return false;
      read |= (bits & 0x7f) << (7 * i);
      if (bits < 0x80) {
        value = read;
        next_ += i + 1;
        left_ -= i + 1;
        return true;
      }
    }
    return false;
  }

  // Reads a varint of at most 32 bits.
  [[nodiscard]] bool varint32(std::uint32_t& value) noexcept {
    std::uint64_t wide = 0;
    if (!varint(wide) || wide > UINT32_MAX) return false;
    value = static_cast<std::uint32_t>(wide);
    return true;
  }

  // Takes the next `count` bytes.
  [[nodiscard]] bool take(std::uint64_t count,
                          std::span<const std::byte>& bytes) noexcept {
    if (count > left_) return false;
    bytes = {next_, static_cast<std::size_t>(count)};
    next_ += count;
    left_ -= bytes.size();
    return true;
  }

 private:
  const std::byte* next_;
  std::size_t left_;
};

}  // namespace gristmill
