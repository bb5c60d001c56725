#include "core/tf_record/tf_record_sidecar.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>

#include "core/base/byte_buffer.hpp"
#include "core/base/crc32c.hpp"
#include "core/base/varint.hpp"
#include "core/files/damage.hpp"
#include "core/files/local_file.hpp"

namespace gristmill {
namespace {

constexpr std::string_view kMagic = "GRISTMTF";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kChecksumAt = 12;
constexpr std::size_t kStampAt = 16;
constexpr std::size_t kRecordsAt = 32;
constexpr std::size_t kHeaderBytes = 40;

template <class T>
void store_le(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

Status write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return Status::system(put < 0 ? errno : EIO, "write failed");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

// Makes an index of the sizes of `records` records, which fill a file of
// `file_size` bytes.
Result<TfRecordIndex> parse_sizes(std::span<const std::byte> sizes,
                                  std::uint64_t records,
                                  std::uint64_t file_size) {
  ByteCursor cursor(sizes);
  if (records > cursor.left()) return damaged("the index lacks records");
  TfRecordIndex::Builder builder(records);
  for (std::uint64_t i = 0; i < records; ++i) {
    std::uint64_t size = 0;
    const std::uint64_t left = file_size - builder.end();
    if (!cursor.varint(size) || left < kFrameBytes ||
        size > left - kFrameBytes) {
      return damaged("record " + std::to_string(i) + " of the index is wrong");
    }
    builder.add(size);
  }
  if (cursor.left() > 0 || builder.end() != file_size) {
    return damaged("the index does not end with the file");
  }
  return std::move(builder).finish();
}

// A name beside `path` that no other process or thread comes upon.
std::string temporary_name(const std::string& path) {
  std::random_device random;
  std::array<char, 24> suffix;
  std::snprintf(suffix.data(), suffix.size(), ".%08x%08x.tmp", random(),
                random());
  return path + suffix.data();
}

}  // namespace

std::vector<std::byte> pack_sidecar(const TfRecordIndex& index,
                                    const FileStamp& stamp) {
  std::uint64_t size = kHeaderBytes;
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    size += varint_bytes(index.place(i).data_size());
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  store_le(bytes.data() + kVersionAt, kVersion);
  store_le(bytes.data() + kStampAt, stamp.size);
  store_le(bytes.data() + kStampAt + 8, stamp.version);
  store_le(bytes.data() + kRecordsAt, index.size());
  std::byte* to = bytes.data() + kHeaderBytes;
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    to = put_varint(to, index.place(i).data_size());
  }
  store_le(bytes.data() + kChecksumAt,
           crc32c(std::span(bytes).subspan(kStampAt)));
  return bytes;
}

Result<TfRecordIndex> parse_sidecar(std::span<const std::byte> contents,
                                    const FileStamp& stamp) {
  const std::byte* const header = contents.data();
  if (contents.size() < kHeaderBytes ||
      std::memcmp(header, kMagic.data(), kMagic.size()) != 0) {
    return damaged("not the index of a TFRecord file");
  }
  const auto version = load_le<std::uint32_t>(header + kVersionAt);
  if (version != kVersion) {
    return damaged("the index has version " + std::to_string(version) +
                   ", expected " + std::to_string(kVersion));
  }
  if (load_le<std::uint32_t>(header + kChecksumAt) !=
      crc32c(contents.subspan(kStampAt))) {
    return damaged("the index is damaged");
  }
  const FileStamp found{load_le<std::uint64_t>(header + kStampAt),
                        load_le<std::uint64_t>(header + kStampAt + 8)};
  if (found != stamp) return damaged("the index is of another file");
  return parse_sizes(contents.subspan(kHeaderBytes),
                     load_le<std::uint64_t>(header + kRecordsAt), stamp.size);
}

Result<TfRecordIndex> load_sidecar(const std::string& path,
                                   const FileStamp& stamp) {
  auto opened = LocalFile::open(path, LocalFile::Access::kPread);
  if (!opened.ok()) return opened.status();
  const File& file = *opened.value();
  // A record of n bytes takes 16 + n bytes there, and a varint here.
  if (file.size() > kHeaderBytes + stamp.size / kFrameBytes) {
    return damaged("the index has more records than the file has room for");
  }
  ByteBuffer contents;
  if (!contents.reset(file.size())) {
    return Status(Code::kNoMemory, path + ": no memory to read the index");
  }
  Status status = file.read(0, contents.all());
  if (!status.ok()) return status;
  return parse_sidecar(contents.all(), stamp);
}

Status save_sidecar(const std::string& path, const TfRecordIndex& index,
                    const FileStamp& stamp) {
  const auto contents = pack_sidecar(index, stamp);
  const std::string temporary = temporary_name(path);
  // As readable for others as any file that this user writes.
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return Status::system(errno, temporary + ": open failed");
  Status status = write_all(fd, contents);
  if (::close(fd) != 0 && status.ok()) {
    status = Status::system(errno, "close failed");
  }
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = Status::system(errno, "rename failed");
  }
  if (status.ok()) return {};
  ::unlink(temporary.c_str());
  return Status::system(status.error_number(), path + ": " + status.message());
}

}  // namespace gristmill
