#include "core/files/array_file.hpp"

#include <bit>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/crc32c.hpp"
#include "core/base/own_memory.hpp"
#include "core/files/file_lock.hpp"
#include "core/files/local_file.hpp"
#include "core/files/replace_file.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kAlignment = 64;
// Limits the sizes of a file, so that their sum cannot overflow.
constexpr std::uint64_t kMaxArrayBytes = std::uint64_t{1} << 60;
// Building is faster than this on any machine.
constexpr std::uint64_t kSlowestBytesPerMs = 100'000;
constexpr std::chrono::milliseconds kMinWait{2000};

// The beginning of the file.
struct ArrayHeader {
  std::array<char, 8> magic{'G', 'R', 'I', 'S', 'T', 'A', 'R', 'R'};
  std::uint32_t version = 1;
  std::array<std::uint32_t, 3> checksums{};
  std::uint64_t key = 0;
  ArrayFile::Sizes sizes{};
};
static_assert(sizeof(ArrayHeader) == kAlignment);

std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

// Returns the bytes after the header.
std::uint64_t body_bytes(const ArrayFile::Sizes& sizes) {
  std::uint64_t bytes = 0;
  for (const auto size : sizes) bytes += round_up(size, kAlignment);
  return round_up(bytes, 3 * kAlignment);
}

std::array<std::uint32_t, 3> checksums_of(const ArrayHeader& header,
                                          std::span<const std::byte> body) {
  const std::uint32_t prefix = crc32c(
      std::as_bytes(std::span(&header, 1)).subspan(offsetof(ArrayHeader, key)));
  const std::size_t third = body.size() / 3;
  return crc32c_of_three(
      {body.first(third), body.subspan(third, third), body.subspan(2 * third)},
      {prefix, prefix, prefix});
}

// Computes the arrays.  Returns the contents of the file.
Result<OwnMemory> build_image(std::uint64_t key, const ArrayFile::Sizes& sizes,
                              const ArrayFile::Build& build) {
  const std::uint64_t body_size = body_bytes(sizes);
  OwnMemory image;
  if (!image.resize(sizeof(ArrayHeader) + body_size)) {
    return Status(Code::kNoMemory, "no memory for an index of ", body_size,
                  " bytes");
  }
  const std::span<std::byte> body(image.data() + sizeof(ArrayHeader),
                                  body_size);
  std::array<std::span<std::byte>, ArrayFile::kMaxArrays> arrays;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    arrays[i] = body.subspan(begin, sizes[i]);
    const std::size_t end = begin + sizes[i];
    begin += round_up(sizes[i], kAlignment);
    std::memset(body.data() + end, 0, begin - end);
  }
  std::memset(body.data() + begin, 0, body.size() - begin);
  TRY(build(arrays));
  ArrayHeader header{.key = key, .sizes = sizes};
  header.checksums = checksums_of(header, body);
  std::memcpy(image.data(), &header, sizeof header);
  return image;
}

Status save(std::span<const std::byte> image, const std::string& path) {
  TRY(check_free_space(path, image.size()));
  return replace_file(path, {image});
}

}  // namespace

ArrayFile::ArrayFile(const Sizes& sizes, std::span<const std::byte> image,
                     std::shared_ptr<const void> owner, std::string path)
    : owner_(std::move(owner)), path_(std::move(path)) {
  std::size_t begin = sizeof(ArrayHeader);
  for (std::size_t i = 0; i < kMaxArrays; ++i) {
    arrays_[i] = image.subspan(begin, sizes[i]);
    begin += round_up(sizes[i], kAlignment);
  }
}

Result<ArrayFile> ArrayFile::load(const std::string& path, std::uint64_t key,
                                  const Sizes& sizes, bool trusted) {
  const std::shared_ptr<const File> file =
      TRY(LocalFile::open(path, LocalFile::Access::kMmapAll));
  const auto bytes = file->mapped();
  const ArrayHeader expected{.key = key, .sizes = sizes};
  ArrayHeader header;
  if (bytes.size() != sizeof header + body_bytes(sizes)) {
    return damaged(path, ": not this index");
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != expected.magic || header.version != expected.version ||
      header.key != key || header.sizes != sizes) {
    return damaged(path, ": not this index");
  }
  if (!trusted &&
      header.checksums != checksums_of(header, bytes.subspan(sizeof header))) {
    return damaged(path, ": the index is damaged");
  }
  return ArrayFile(sizes, bytes, file, path);
}

Result<ArrayFile> ArrayFile::load_or_build(const Place& place,
                                           const Sizes& sizes,
                                           const Build& build) {
  const auto load_first = [&]() -> std::optional<ArrayFile> {
    for (const std::string& path : place.index_paths) {
      auto found = load(path, place.key, sizes, /*trusted=*/false);
      if (found.ok()) return std::move(found).value();
    }
    return std::nullopt;
  };
  for (const auto size : sizes) {
    if (size > kMaxArrayBytes) {
      return Status(Code::kNoMemory, "no memory for an index of ", size,
                    " bytes");
    }
  }
  if (auto found = load_first()) return *std::move(found);
  std::optional<FileLock> lock;
  if (!place.index_paths.empty()) {
    const std::chrono::milliseconds build_time(body_bytes(sizes) /
                                               kSlowestBytesPerMs);
    lock.emplace(place.data_path, kMinWait + build_time);
    if (lock->was_contended()) {
      if (auto found = load_first()) return *std::move(found);
    }
  }
  const auto image = std::make_shared<const OwnMemory>(
      TRY(build_image(place.key, sizes, build)));
  const std::span<const std::byte> bytes(image->data(), image->size());
  for (const std::string& path : place.index_paths) {
    if (!save(bytes, path).ok()) continue;
    auto saved = load(path, place.key, sizes, /*trusted=*/true);
    if (saved.ok()) return std::move(saved).value();
    break;
  }
  return ArrayFile(sizes, bytes, image, "");
}

}  // namespace gristmill
