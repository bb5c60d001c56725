// A TarWalk moves from member to member of a tar file.
//
// It supports the headers of ustar, of GNU tar (long names, large sizes) and of
// pax (path, size), and reads them like Python's tarfile.  If a header is
// damaged, it fails; tarfile may treat this as the end of the file.
//
// Thread safety: none; a walk belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/status.hpp"

namespace gristmill {

inline constexpr std::uint64_t kTarBlock = 512;

struct TarMember {
  std::string name;
  bool is_regular = false;  // True for files, false for folders and links.
  std::uint64_t begin = 0;  // The offset of its first header.
  std::uint64_t data = 0;   // The offset of its data.
  std::uint64_t size = 0;

  [[nodiscard]] std::uint64_t end() const { return data + size; }
};

class TarWalk {
 public:
  // Returns `size` bytes at `at`, valid until the next call.
  using ReadBytes = std::function<Result<std::span<const std::byte>>(
      std::uint64_t at, std::uint64_t size)>;

  // Walks over the bytes [begin, end) of a file.
  TarWalk(ReadBytes read_bytes, std::uint64_t begin, std::uint64_t end)
      : read_bytes_(std::move(read_bytes)), position_(begin), end_(end) {}

  // Moves to the next member.  Returns false at the end.  Errors name the
  // offset of the member.
  Result<bool> next();

  // REQUIRES: next() returned true.
  [[nodiscard]] const TarMember& member() const { return member_; }

 private:
  using Bytes = std::span<const std::byte>;

  // Values from the headers before a member's own; the first of each counts.
  struct Overrides {
    std::optional<std::string> name;
    std::optional<std::uint64_t> size;
  };

  Result<bool> read_member();
  Status parse_member(Bytes header, std::uint64_t size,
                      const Overrides& overrides);
  Status parse_extension_header(char type, std::uint64_t size,
                                Overrides& overrides);
  static Status parse_pax_records(Bytes records, bool global,
                                  Overrides& overrides);

  const ReadBytes read_bytes_;
  std::uint64_t position_;
  const std::uint64_t end_;
  TarMember member_;
};

// Returns the name of the compression, such as "gzip", of a file that begins
// with these bytes, or "" if it is not compressed.
[[nodiscard]] std::string_view tar_compression(
    std::span<const std::byte> begin) noexcept;

}  // namespace gristmill
