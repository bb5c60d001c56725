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
constexpr std::uint64_t kMaxExtensionBytes = std::uint64_t{1} << 20;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns a field up to its first zero byte.
std::string_view text_of(Bytes header, const Field& field) {
  const auto all = text_of(header.subspan(field.at, field.size));
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
std::optional<std::uint64_t> number_of(Bytes header, const Field& field) {
  const auto bytes = header.subspan(field.at, field.size);
  if (bytes[0] != std::byte{0x80}) {
    const auto digits = trimmed(text_of(header, field));
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
bool has_valid_checksum(Bytes header) {
  const auto stored = number_of(header, kChecksum);
  if (!stored) return false;
  std::int64_t unsigned_sum = 0;
  std::int64_t negative_bytes =
      0;  // Bytes that are negative if they are signed.
  for (const std::byte byte : header) {
    unsigned_sum += std::to_integer<std::int64_t>(byte);
    negative_bytes += std::to_integer<std::int64_t>(byte >> 7);
  }
  for (const std::byte byte : header.subspan(kChecksum.at, kChecksum.size)) {
    unsigned_sum += ' ' - std::to_integer<std::int64_t>(byte);
    negative_bytes -= std::to_integer<std::int64_t>(byte >> 7);
  }
  const auto expected = static_cast<std::int64_t>(*stored & INT64_MAX);
  return expected == unsigned_sum ||
         expected == unsigned_sum - 256 * negative_bytes;
}

std::uint64_t round_up_to_block(std::uint64_t size) {
  return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

Status truncated(std::uint64_t size, std::uint64_t left) {
  return damaged("it has ", size, " bytes, but the file ends after ", left,
                 ": it is still being written, or was not copied whole");
}

}  // namespace

Result<bool> TarWalk::next() {
  const std::uint64_t begin = position_;
  auto found = read_member();
  if (found.ok() || found.status().is_external()) return found;
  return Status(found.status().code(), "the member at offset ", begin, ": ",
                found.status().message());
}

Result<bool> TarWalk::read_member() {
  Overrides overrides;
  const std::uint64_t begin = position_;
  for (;;) {
    const bool has_extension_headers = position_ != begin;
    // The padding of the last block may be missing.
    if (position_ >= end_) {
      if (has_extension_headers) {
        return damaged("the file ends within its headers");
      }
      return false;
    }
    if (end_ - position_ < kTarBlock) {
      return truncated(kTarBlock, end_ - position_);
    }
    const Bytes header = TRY(read_bytes_(position_, kTarBlock));
    if (std::ranges::all_of(header,
                            [](std::byte b) { return b == std::byte(); })) {
      if (has_extension_headers) return damaged("zeros follow its headers");
      position_ = end_;
      return false;
    }
    const auto size = number_of(header, kSize);
    if (!has_valid_checksum(header) || !size) {
      return damaged("its header at offset ", position_, " is damaged");
    }
    const char type = std::to_integer<char>(header[kType]);
    // L and K: GNU's long name and long link; x, X and g: pax headers.
    if (std::string_view("LKxXg").find(type) == std::string_view::npos) {
      member_.begin = begin;
      TRY(parse_member(header, *size, overrides));
      return true;
    }
    TRY(parse_extension_header(type, *size, overrides));
  }
}

// Reads the header of a member and moves to the end of its data.
Status TarWalk::parse_member(Bytes header, std::uint64_t size,
                             const Overrides& overrides) {
  char type = std::to_integer<char>(header[kType]);
  const auto name = text_of(header, kName);
  if (type == 'S') {
    return damaged("it is a sparse file: pack it without --sparse");
  }
  // Old headers have no type: 5 is a folder, 0 and 7 are regular files.
  if (type == '\0') type = name.ends_with('/') ? '5' : '0';
  const auto prefix = text_of(header, kPrefix);
  member_.name = overrides.name   ? *overrides.name
                 : prefix.empty() ? std::string(name)
                                  : concat(prefix, "/", name);
  member_.is_regular = type == '0' || type == '7';
  member_.data = position_ + kTarBlock;
  // Links, devices and folders have no data, even if the size is not 0.
  const bool has_data = type < '1' || type > '6';
  member_.size = has_data ? overrides.size.value_or(size) : 0;
  const std::uint64_t left = end_ - member_.data;
  if (member_.size > left) return truncated(member_.size, left);
  position_ = member_.data + round_up_to_block(member_.size);
  return {};
}

// Reads a header that describes the next member.
Status TarWalk::parse_extension_header(char type, std::uint64_t size,
                                       Overrides& overrides) {
  const std::uint64_t data = position_ + kTarBlock;
  if (size > end_ - data) return truncated(size, end_ - data);
  if (size > kMaxExtensionBytes) {
    return damaged("its name or its pax header has ", size, " bytes");
  }
  const Bytes body = TRY(read_bytes_(data, size));
  position_ = data + round_up_to_block(size);
  if (type == 'L') {
    const Field all{0, body.size()};
    if (!overrides.name) overrides.name = text_of(body, all);
  } else if (type != 'K') {
    return parse_pax_records(body, type == 'g', overrides);
  }
  return {};
}

// Reads records such as "14 path=a.jpg\n", which begin with their length.
Status TarWalk::parse_pax_records(Bytes records, bool global,
                                  Overrides& overrides) {
  auto remaining = text_of(records);
  Overrides values;
  while (!remaining.empty() && remaining.front() != '\0') {
    const auto space = remaining.find(' ');
    const auto equals =
        remaining.find('=', space == remaining.npos ? space : space + 1);
    const auto length = parse(remaining.substr(0, space), 10);
    if (equals == remaining.npos || !length || *length > remaining.size() ||
        *length < equals + 2) {
      return damaged("its pax header is damaged");
    }
    const auto key = remaining.substr(space + 1, equals - space - 1);
    auto value = remaining.substr(equals + 1, *length - equals - 2);
    remaining.remove_prefix(*length);
    if (key.starts_with("GNU.sparse.")) {
      return damaged("it is a sparse file: pack it without --sparse");
    }
    if (key != "path" && key != "size") continue;
    if (global) {
      return damaged("a global pax header sets the ", key, " of all members");
    }
    if (key == "path") {
      while (value.ends_with('/')) value.remove_suffix(1);
      values.name = value;
    } else if (!(values.size = parse(value, 10))) {
      return damaged("the size in its pax header is not a number");
    }
  }
  if (!overrides.name) overrides.name = std::move(values.name);
  if (!overrides.size) overrides.size = values.size;
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
