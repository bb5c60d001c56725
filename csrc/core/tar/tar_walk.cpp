#include "core/tar/tar_walk.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/files/verify.hpp"

namespace gristmill {
namespace {

using Bytes = std::span<const std::byte>;

// The offset and the size of a field in a header.
struct Field {
  std::size_t at;
  std::size_t size;
};
constexpr Field kName{0, 100};
constexpr Field kSize{124, 12};
constexpr Field kChecksum{148, 8};
constexpr std::size_t kType = 156;
constexpr Field kPrefix{345, 155};

// Larger names and pax headers count as damage.
constexpr std::uint64_t kMaxExtension = std::uint64_t{1} << 20;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns a field up to its first zero byte.
std::string_view text_of(Bytes head, const Field& field) {
  const auto all = text_of(head.subspan(field.at, field.size));
  return all.substr(0, all.find('\0'));
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\v\f";
  const auto begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::optional<std::uint64_t> parse(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || next != end) return std::nullopt;
  return value;
}

// Returns a number, stored in octal digits or, after a byte 0x80, in binary.
std::optional<std::uint64_t> number_of(Bytes head, const Field& field) {
  const auto bytes = head.subspan(field.at, field.size);
  if (bytes[0] != std::byte{0x80}) {
    const auto digits = trimmed(text_of(head, field));
    return digits.empty() ? 0 : parse(digits, 8);
  }
  std::uint64_t value = 0;
  for (const std::byte byte : bytes.subspan(1)) {
    if (value >> 56 != 0) return std::nullopt;
    value = value << 8 | std::to_integer<std::uint64_t>(byte);
  }
  return value;
}

// Returns whether the checksum of a header is right.  It is the sum of the
// bytes, which some programs treat as signed.
bool sum_is_right(Bytes head) {
  const auto stored = number_of(head, kChecksum);
  if (!stored) return false;
  std::int64_t plain = 0;
  std::int64_t high = 0;  // Bytes that are negative if they are signed.
  for (const std::byte byte : head) {
    plain += std::to_integer<std::int64_t>(byte);
    high += std::to_integer<std::int64_t>(byte >> 7);
  }
  for (const std::byte byte : head.subspan(kChecksum.at, kChecksum.size)) {
    plain += ' ' - std::to_integer<std::int64_t>(byte);
    high -= std::to_integer<std::int64_t>(byte >> 7);
  }
  const auto wanted = static_cast<std::int64_t>(*stored & INT64_MAX);
  return wanted == plain || wanted == plain - 256 * high;
}

std::uint64_t padded(std::uint64_t size) {
  return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

Status truncated(std::uint64_t size, std::uint64_t left) {
  return damaged("it has ", size, " bytes, but the file ends after ", left,
                 ": it is still being written, or was not copied whole");
}

}  // namespace

Result<bool> TarWalk::next() {
  const std::uint64_t begin = at_;
  auto found = step();
  if (found.ok() || found.status().is_external()) return found;
  return Status(found.status().code(), "the member at offset ", begin, ": ",
                found.status().message());
}

Result<bool> TarWalk::step() {
  Said said;
  const std::uint64_t begin = at_;
  for (;;) {
    const bool begun = at_ != begin;
    // The padding of the last block may be missing.
    if (at_ >= end_) {
      if (begun) return damaged("the file ends within its headers");
      return false;
    }
    if (end_ - at_ < kTarBlock) return truncated(kTarBlock, end_ - at_);
    const Bytes head = TRY(look_(at_, kTarBlock));
    if (std::ranges::all_of(head,
                            [](std::byte b) { return b == std::byte(); })) {
      if (begun) return damaged("zeros follow its headers");
      at_ = end_;
      return false;
    }
    const auto size = number_of(head, kSize);
    if (!sum_is_right(head) || !size) {
      return damaged("its header at offset ", at_, " is damaged");
    }
    const char type = std::to_integer<char>(head[kType]);
    if (std::string_view("LKxXg").find(type) == std::string_view::npos) {
      member_.begin = begin;
      TRY(take_member(head, *size, said));
      return true;
    }
    TRY(take_extension(type, *size, said));
  }
}

// Reads the header of a member and moves to the end of its data.
Status TarWalk::take_member(Bytes head, std::uint64_t size, const Said& said) {
  char type = std::to_integer<char>(head[kType]);
  const auto name = text_of(head, kName);
  if (type == 'S') {
    return damaged("it is a sparse file: pack it without --sparse");
  }
  if (type == '\0') type = name.ends_with('/') ? '5' : '0';
  const auto prefix = text_of(head, kPrefix);
  member_.name = said.name        ? *said.name
                 : prefix.empty() ? std::string(name)
                                  : concat(prefix, "/", name);
  member_.regular = type == '0' || type == '7';
  member_.data = at_ + kTarBlock;
  // Links, devices and folders have no data, even if the size is not 0.
  const bool has_data = type < '1' || type > '6';
  member_.size = has_data ? said.size.value_or(size) : 0;
  const std::uint64_t left = end_ - member_.data;
  if (member_.size > left) return truncated(member_.size, left);
  at_ = member_.data + padded(member_.size);
  return {};
}

// Reads a header that describes the next member.
Status TarWalk::take_extension(char type, std::uint64_t size, Said& said) {
  const std::uint64_t data = at_ + kTarBlock;
  if (size > end_ - data) return truncated(size, end_ - data);
  if (size > kMaxExtension) {
    return damaged("its name or its pax header has ", size, " bytes");
  }
  const Bytes body = TRY(look_(data, size));
  at_ = data + padded(size);
  if (type == 'L') {
    const Field all{0, body.size()};
    if (!said.name) said.name = text_of(body, all);
  } else if (type != 'K') {
    return take_pax(body, type == 'g', said);
  }
  return {};
}

// Reads records such as "14 path=a.jpg\n", which begin with their length.
Status TarWalk::take_pax(Bytes records, bool global, Said& said) {
  auto rest = text_of(records);
  Said here;
  while (!rest.empty() && rest.front() != '\0') {
    const auto space = rest.find(' ');
    const auto equals = rest.find('=', space == rest.npos ? space : space + 1);
    const auto length = parse(rest.substr(0, space), 10);
    if (equals == rest.npos || !length || *length > rest.size() ||
        *length < equals + 2) {
      return damaged("its pax header is damaged");
    }
    const auto key = rest.substr(space + 1, equals - space - 1);
    auto value = rest.substr(equals + 1, *length - equals - 2);
    rest.remove_prefix(*length);
    if (key.starts_with("GNU.sparse.")) {
      return damaged("it is a sparse file: pack it without --sparse");
    }
    if (key != "path" && key != "size") continue;
    if (global) {
      return damaged("a global pax header sets the ", key, " of all members");
    }
    if (key == "path") {
      while (value.ends_with('/')) value.remove_suffix(1);
      here.name = value;
    } else if (!(here.size = parse(value, 10))) {
      return damaged("the size in its pax header is not a number");
    }
  }
  if (!said.name) said.name = std::move(here.name);
  if (!said.size) said.size = here.size;
  return {};
}

std::string_view tar_compression(Bytes begin) noexcept {
  struct Magic {
    std::string_view bytes;
    std::string_view name;
  };
  static constexpr std::array<Magic, 4> kMagic{{
      {"\x1f\x8b", "gzip"},
      {"\x28\xb5\x2f\xfd", "zstd"},
      {"BZh", "bzip2"},
      {"\xfd"
       "7zXZ",
       "xz"},
  }};
  for (const Magic& magic : kMagic) {
    if (text_of(begin).starts_with(magic.bytes)) return magic.name;
  }
  return "";
}

}  // namespace gristmill
