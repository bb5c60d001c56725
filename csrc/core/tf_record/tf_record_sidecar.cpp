#include "core/tf_record/tf_record_sidecar.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/base/byte_buffer.hpp"
#include "core/base/crc32c.hpp"
#include "core/base/varint.hpp"
#include "core/files/local_file.hpp"
#include "core/files/replace_file.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

static_assert(std::endian::native == std::endian::little);

// What a sidecar begins with, as the file has it.
struct Header {
  std::array<char, 8> magic{'G', 'R', 'I', 'S', 'T', 'M', 'T', 'F'};
  std::uint32_t version = 1;
  std::uint32_t checksum = 0;
  FileStamp stamp;
  std::uint64_t records = 0;
};
static_assert(sizeof(Header) == 40);

constexpr std::size_t kCheckedFrom = offsetof(Header, stamp);

// Makes an index of the sizes of `records` records, which fill a file of
// `file_size` bytes.
Result<TfRecordIndex> parse_sizes(std::span<const std::byte> sizes,
                                  std::uint64_t records,
                                  std::uint64_t file_size) {
  ByteCursor cursor(sizes);
  if (records > cursor.left()) return damaged("the index lacks records");
  TfRecordIndex index;
  for (std::uint64_t i = 0; i < records; ++i) {
    std::uint64_t size = 0;
    const std::uint64_t left = file_size - index.end();
    if (!cursor.varint(size) || left < kFrameBytes ||
        size > left - kFrameBytes) {
      return damaged("record ", i, " of the index is wrong");
    }
    index.add(size);
  }
  if (cursor.left() > 0 || index.end() != file_size) {
    return damaged("the index does not end with the file");
  }
  index.finish();
  return index;
}

}  // namespace

std::vector<std::byte> pack_sidecar(const TfRecordIndex& index,
                                    const FileStamp& stamp) {
  std::uint64_t size = sizeof(Header);
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    size += varint_bytes(index.place(i).data_size());
  }
  Header header{.stamp = stamp, .records = index.size()};
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  std::memcpy(bytes.data(), &header, sizeof header);
  std::byte* to = bytes.data() + sizeof header;
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    to = put_varint(to, index.place(i).data_size());
  }
  header.checksum = crc32c(std::span(bytes).subspan(kCheckedFrom));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Result<TfRecordIndex> parse_sidecar(std::span<const std::byte> contents,
                                    const FileStamp& stamp) {
  const Header expected;
  Header header;
  if (contents.size() >= sizeof header) {
    std::memcpy(&header, contents.data(), sizeof header);
  }
  if (contents.size() < sizeof header || header.magic != expected.magic) {
    return damaged("not the index of a TFRecord file");
  }
  if (header.version != expected.version) {
    return damaged("the index has version ",
                   found(header.version, expected.version));
  }
  if (header.checksum != crc32c(contents.subspan(kCheckedFrom))) {
    return damaged("the index is damaged");
  }
  if (header.stamp != stamp) return damaged("the index is of another file");
  return parse_sizes(contents.subspan(sizeof header), header.records,
                     stamp.size);
}

Result<TfRecordIndex> load_sidecar(const std::string& path,
                                   const FileStamp& stamp) {
  const auto file = TRY(LocalFile::open(path, LocalFile::Access::kPread));
  // A record of n bytes takes 16 + n bytes there, and a varint here.
  if (file->size() > sizeof(Header) + stamp.size / kFrameBytes) {
    return damaged("the index has more records than the file has room for");
  }
  ByteBuffer contents;
  if (!contents.reset(file->size())) return no_memory_for("the index");
  TRY(file->read(0, contents.all()));
  return parse_sidecar(contents.all(), stamp);
}

Status save_sidecar(const std::string& path, const TfRecordIndex& index,
                    const FileStamp& stamp) {
  return replace_file(path, {pack_sidecar(index, stamp)});
}

}  // namespace gristmill
