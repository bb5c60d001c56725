#include "core/tf_record/tf_record_frame.hpp"

#include <array>
#include <bit>
#include <cassert>
#include <cstdio>
#include <string>

#include "core/base/crc32c.hpp"
#include "core/base/varint.hpp"

namespace gristmill {
namespace {

constexpr std::uint32_t kMask = 0xa282ead8;

std::string hex(std::uint32_t value) {
  std::array<char, 11> text;
  std::snprintf(text.data(), text.size(), "0x%08x", value);
  return text.data();
}

bool has_right_length(std::span<const std::byte> head) noexcept {
  return frame_checksum(head.first(sizeof(std::uint64_t))) ==
         load_le<std::uint32_t>(head.data() + sizeof(std::uint64_t));
}

Status mismatch(std::string_view what, std::uint32_t computed,
                std::uint32_t stored) {
  return Status(Code::kInvalidArgument, "the checksum of " + std::string(what) +
                                            " is " + hex(computed) +
                                            ", expected " + hex(stored));
}

}  // namespace

std::uint32_t frame_checksum(std::span<const std::byte> bytes) noexcept {
  return std::rotr(crc32c(bytes), 15) + kMask;
}

Result<std::uint64_t> frame_length(std::span<const std::byte> head) {
  assert(head.size() == kFrameHead);
  const auto length = load_le<std::uint64_t>(head.data());
  if (!has_right_length(head)) {
    return mismatch("its length " + std::to_string(length),
                    frame_checksum(head.first(sizeof length)),
                    load_le<std::uint32_t>(head.data() + sizeof length));
  }
  return length;
}

Status check_frame_data(std::span<const std::byte> data,
                        std::span<const std::byte> tail) {
  assert(tail.size() == kFrameTail);
  const std::uint32_t computed = frame_checksum(data);
  const auto stored = load_le<std::uint32_t>(tail.data());
  if (computed == stored) return {};
  return mismatch("its data", computed, stored);
}

std::string_view frame_compression(std::span<const std::byte> begin) noexcept {
  if (begin.size() >= kFrameHead && has_right_length(begin.first(kFrameHead))) {
    return "";
  }
  if (begin.size() < 2) return "";
  const auto first = std::to_integer<unsigned>(begin[0]);
  const auto second = std::to_integer<unsigned>(begin[1]);
  if (first == 0x1f && second == 0x8b) return "GZIP";
  // Deflate with a window of up to 32 KiB, no dictionary, and a check.
  const bool deflate = (first & 0x0f) == 8 && first >> 4 <= 7;
  if (deflate && (second & 0x20) == 0 && (first * 256 + second) % 31 == 0) {
    return "ZLIB";
  }
  return "";
}

}  // namespace gristmill
