#include "core/packing/window_ends_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "core/base/crc32c.hpp"
#include "core/files/local_file.hpp"
#include "core/files/replace_file.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// The beginning of the file.
struct WindowEndsHeader {
  std::array<char, 8> magic{'G', 'R', 'I', 'S', 'T', 'M', 'W', 'E'};
  std::uint32_t version = 1;
  std::uint32_t checksum = 0;
  std::uint64_t key = 0;
};
static_assert(sizeof(WindowEndsHeader) == 24);

constexpr std::size_t kKeyBegin = offsetof(WindowEndsHeader, key);

}  // namespace

Result<std::vector<std::int64_t>> parse_window_ends(
    std::span<const std::byte> bytes, std::uint64_t key) {
  const WindowEndsHeader expected;
  WindowEndsHeader header;
  if (bytes.size() >= sizeof header) {
    std::memcpy(&header, bytes.data(), sizeof header);
  }
  if (bytes.size() < sizeof header || header.magic != expected.magic) {
    return damaged("not the file of a packing plan");
  }
  if (header.version != expected.version) {
    return damaged("the file has version ",
                   found(header.version, expected.version));
  }
  if (header.key != key) return damaged("the file is of another packing plan");
  const auto body = bytes.subspan(sizeof header);
  if (body.size() % sizeof(std::int64_t) != 0 ||
      header.checksum != crc32c(bytes.subspan(kKeyBegin))) {
    return damaged("the file is damaged");
  }
  std::vector<std::int64_t> ends(body.size() / sizeof(std::int64_t));
  if (!ends.empty()) std::memcpy(ends.data(), body.data(), body.size());
  if (!ends.empty() && (ends[0] < 0 || !std::ranges::is_sorted(ends))) {
    return damaged("the file is damaged");
  }
  return ends;
}

Result<std::vector<std::int64_t>> load_window_ends(const std::string& path,
                                                   std::uint64_t key) {
  const std::shared_ptr<const File> file =
      TRY(LocalFile::open(path, LocalFile::Access::kMmapAll));
  return parse_window_ends(file->mapped(), key);
}

Status save_window_ends(const std::string& path, std::uint64_t key,
                        std::span<const std::int64_t> ends) {
  WindowEndsHeader header{.key = key};
  const auto body = std::as_bytes(ends);
  const auto head = std::as_bytes(std::span(&header, 1));
  header.checksum = crc32c(body, crc32c(head.subspan(kKeyBegin)));
  return replace_file(path, {head, body});
}

}  // namespace gristmill
