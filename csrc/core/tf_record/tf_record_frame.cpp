#include "core/tf_record/tf_record_frame.hpp"

#include <array>
#include <bit>
#include <cassert>
#include <cstdio>
#include <string>

#include "core/base/crc32c.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

constexpr std::uint32_t kMask = 0xa282ead8;

std::string hex(std::uint32_t value) {
  std::array<char, 11> text;
  std::snprintf(text.data(), text.size(), "0x%08x", value);
  return text.data();
}

// Compares the checksum of bytes with the stored one.
template <class... What>
Status check(std::span<const std::byte> bytes, const std::byte* stored_at,
             const What&... what) {
  const std::uint32_t computed = frame_checksum(bytes);
  const auto stored = load_le<std::uint32_t>(stored_at);
  if (computed == stored) return {};
  return damaged("the checksum of ", what..., " is ", hex(computed),
                 ", expected ", hex(stored));
}

}  // namespace

std::uint32_t frame_checksum(std::span<const std::byte> bytes) noexcept {
  return std::rotr(crc32c(bytes), 15) + kMask;
}

Status check_frame_length(std::span<const std::byte> head) {
  assert(head.size() == kFrameHead);
  const auto length = head.first(sizeof(std::uint64_t));
  return check(length, head.data() + length.size(), "its length ",
               frame_length(head));
}

Status check_frame_data(std::span<const std::byte> data,
                        std::span<const std::byte> tail) {
  assert(tail.size() == kFrameTail);
  return check(data, tail.data(), "its data");
}

Status truncated_record(std::uint64_t record, std::uint64_t offset,
                        std::uint64_t left, std::uint64_t length) {
  const std::string found =
      left < kFrameHead
          ? concat("the file ends within its length, after ", left, " bytes")
          : concat("it has ", length, " bytes, but the file ends ",
                   left - kFrameHead, " bytes after its head");
  return damaged_record(record, offset, found,
                        ": it is still being written, or was not copied whole");
}

std::string_view frame_compression(std::span<const std::byte> begin) noexcept {
  if (begin.size() >= kFrameHead &&
      check_frame_length(begin.first(kFrameHead)).ok()) {
    return "";
  }
  if (begin.size() < 2) return "";
  const auto first = std::to_integer<unsigned>(begin[0]);
  const auto second = std::to_integer<unsigned>(begin[1]);
  if (first == 0x1f && second == 0x8b) return "GZIP";
  // Deflate with a window of at most 32 KiB, no dictionary, and valid check
  // bits.
  const bool deflate = (first & 0x0f) == 8 && first >> 4 <= 7;
  if (deflate && (second & 0x20) == 0 && (first * 256 + second) % 31 == 0) {
    return "ZLIB";
  }
  return "";
}

}  // namespace gristmill
