// A TarWalk goes from member to member of a tar file.
//
// It knows the headers of ustar, of GNU tar (long names, large sizes) and of
// pax (path, size), and reads them as Python's tarfile does, but fails where
// that takes a damaged header for the end of the file.
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
  bool regular = false;     // A file, no folder or link.
  std::uint64_t begin = 0;  // Of its first header.
  std::uint64_t data = 0;   // Where its bytes are.
  std::uint64_t size = 0;

  [[nodiscard]] std::uint64_t end() const { return data + size; }
};

class TarWalk {
 public:
  // Returns `size` bytes at `at`, valid until the next call.
  using Look = std::function<Result<std::span<const std::byte>>(
      std::uint64_t at, std::uint64_t size)>;

  // Walks in bytes [begin, end) of a file.
  TarWalk(Look look, std::uint64_t begin, std::uint64_t end)
      : look_(std::move(look)), at_(begin), end_(end) {}

  // Goes to the next member; false at the end.  Errors name its offset.
  Result<bool> next();

  // REQUIRES: next() returned true.
  [[nodiscard]] const TarMember& member() const { return member_; }

 private:
  using Bytes = std::span<const std::byte>;

  // What headers before a member's own say of it; the first to say wins.
  struct Said {
    std::optional<std::string> name;
    std::optional<std::uint64_t> size;
  };

  Result<bool> step();
  Status take_member(Bytes head, std::uint64_t size, const Said& said);
  Status take_extension(char type, std::uint64_t size, Said& said);
  static Status take_pax(Bytes records, bool global, Said& said);

  const Look look_;
  std::uint64_t at_;
  const std::uint64_t end_;
  TarMember member_;
};

// Returns "gzip", say, if a file that begins with these bytes is compressed,
// else "".
[[nodiscard]] std::string_view tar_compression(
    std::span<const std::byte> begin) noexcept;

}  // namespace gristmill
