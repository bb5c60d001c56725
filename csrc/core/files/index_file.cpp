#include "core/files/index_file.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/base/crc32c.hpp"
#include "core/files/local_file.hpp"
#include "core/files/replace_file.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

static_assert(std::endian::native == std::endian::little);

// The beginning of an index file.
struct Header {
  std::array<char, 8> magic{'G', 'R', 'I', 'S', 'T', 'M', 'I', 'X'};
  std::uint32_t version = 1;
  std::uint32_t checksum = 0;
  IndexFile::Origin origin;
  std::uint64_t num_records = 0;
  std::uint64_t group_size = 0;
  std::uint64_t num_chunks = 0;
  std::uint64_t end = 0;
  std::uint64_t options_bytes = 0;
};
static_assert(sizeof(Header) == 80);

constexpr std::size_t kChecksumBegin = offsetof(Header, origin);
constexpr std::uint64_t kGroupBytes = 16;
constexpr std::uint64_t kGroupChunks = 64;

std::span<const std::byte> checksummed_part(const Header& header) {
  return std::as_bytes(std::span(&header, 1)).subspan(kChecksumBegin);
}

// Returns a view of the index in `bytes`, which `owner` keeps alive.
std::optional<IndexFile> view_index(const Header& header,
                                    std::span<const std::byte> bytes,
                                    std::shared_ptr<const void> owner) {
  const std::uint64_t body_bytes = bytes.size() - sizeof header;
  // Limit the numbers first, so that the sums below cannot overflow.
  if (header.num_chunks / kGroupChunks >= body_bytes / kGroupBytes ||
      header.options_bytes > body_bytes ||
      header.end > header.origin.stamp.size) {
    return std::nullopt;
  }
  const std::uint64_t group_bytes =
      kGroupBytes * ((header.num_chunks + kGroupChunks - 1) / kGroupChunks + 1);
  if (group_bytes + header.options_bytes > body_bytes ||
      header.group_size == 0) {
    return std::nullopt;
  }
  const std::uint64_t chunks = header.num_records / header.group_size +
                               (header.num_records % header.group_size != 0);
  if (chunks != header.num_chunks) return std::nullopt;
  const auto body = bytes.subspan(sizeof header);
  const auto options =
      body.last(static_cast<std::size_t>(header.options_bytes));
  auto list = PackedChunks::from_image(
      {body.first(static_cast<std::size_t>(group_bytes)),
       body.subspan(static_cast<std::size_t>(group_bytes),
                    body.size() - static_cast<std::size_t>(group_bytes) -
                        options.size())},
      header.num_chunks, header.end, std::move(owner));
  if (!list) return std::nullopt;
  return IndexFile{header.origin, header.num_records, header.group_size,
                   std::string(reinterpret_cast<const char*>(options.data()),
                               options.size()),
                   *std::move(list)};
}

}  // namespace

Result<IndexFile> IndexFile::load(const std::string& path,
                                  const Origin& origin) {
  const std::shared_ptr<const File> file =
      TRY(LocalFile::open(path, LocalFile::Access::kMmapAll));
  const auto bytes = file->mapped();
  const Header expected;
  Header header;
  if (bytes.size() >= sizeof header) {
    std::memcpy(&header, bytes.data(), sizeof header);
  }
  if (bytes.size() < sizeof header || header.magic != expected.magic) {
    return damaged(path, ": not the index of a data file");
  }
  if (header.version != expected.version) {
    return damaged(path, ": the index has version ",
                   found(header.version, expected.version));
  }
  if (header.origin != origin) {
    return damaged(path, ": the index is of another file");
  }
  if (header.checksum != crc32c(bytes.subspan(kChecksumBegin))) {
    return damaged(path, ": the index is damaged");
  }
  auto index = view_index(header, bytes, file);
  if (!index) return damaged(path, ": the index is not a list of chunks");
  index->path = path;
  return *std::move(index);
}

Status IndexFile::save(const std::string& index_path) const {
  const auto [group_bytes, packed] = chunks.image();
  Header header{.origin = origin,
                .num_records = num_records,
                .group_size = group_size,
                .num_chunks = chunks.size(),
                .end = chunks.end(),
                .options_bytes = options.size()};
  const auto text = std::as_bytes(std::span(options));
  const std::array<std::span<const std::byte>, 4> checksummed_parts = {
      checksummed_part(header), group_bytes, packed, text};
  for (const auto& part : checksummed_parts) {
    header.checksum = crc32c(part, header.checksum);
  }
  TRY(check_free_space(index_path,
                       sizeof header + group_bytes.size() + packed.size()));
  return replace_file(index_path, {std::as_bytes(std::span(&header, 1)),
                                   group_bytes, packed, text});
}

}  // namespace gristmill
