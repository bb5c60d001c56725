#include "core/files/array_file.hpp"

#include <sys/mman.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "core/base/crc32c.hpp"
#include "core/base/own_memory.hpp"
#include "core/base/pool.hpp"
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

Status no_memory(std::uint64_t bytes) {
  return {Code::kNoMemory, "no memory for an index of ", bytes, " bytes"};
}

// Waits at the exit of the process until all files are complete.
Pool& saving_pool() {
  static Pool pool(1);
  return pool;
}

}  // namespace

// Arrays that were built, as the contents of a file, and their way to it.
struct ArrayFile::NewImage {
  // Computes the arrays.  Leaves the header uninitialized.
  Status build(const Sizes& sizes, const Build& build_arrays);
  // Creates `file` at the first path that is writable, and forgets the paths up
  // to it.  Returns false if there is none.
  bool create_file();
  // Completes the file and shares its pages.  If that fails, tries the paths
  // that are left.  Sets `path` on success.
  void save(std::uint64_t key, const Sizes& sizes);

  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {memory.data(), memory.size()};
  }

  OwnMemory memory;
  std::optional<FileLock> lock;
  std::deque<std::string> paths;          // That were not tried yet.
  std::unique_ptr<ReplacementFile> file;  // Null if it cannot be created.
  bool has_file = false;                  // True if `file` was created.
  std::string path;                       // Empty until the file is complete.
  TaskGroup saving;
};

Status ArrayFile::NewImage::build(const Sizes& sizes,
                                  const Build& build_arrays) {
  const std::uint64_t body_size = body_bytes(sizes);
  if (!memory.resize(sizeof(ArrayHeader) + body_size))
    return no_memory(body_size);
  const auto body = bytes().subspan(sizeof(ArrayHeader));
  std::array<std::span<std::byte>, kMaxArrays> arrays;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    arrays[i] = body.subspan(begin, sizes[i]);
    const std::size_t end = begin + sizes[i];
    begin += round_up(sizes[i], kAlignment);
    std::memset(body.data() + end, 0, begin - end);
  }
  std::memset(body.data() + begin, 0, body.size() - begin);
  return build_arrays(arrays);
}

bool ArrayFile::NewImage::create_file() {
  file.reset();
  while (!file && !paths.empty()) {
    const std::string next = std::move(paths.front());
    paths.pop_front();
    if (!check_free_space(next, memory.size()).ok()) continue;
    auto created = ReplacementFile::create(next);
    if (created.ok()) file = std::move(created).value();
  }
  return file != nullptr;
}

void ArrayFile::NewImage::save(std::uint64_t key, const Sizes& sizes) {
  ArrayHeader header{.key = key, .sizes = sizes};
  header.checksums = checksums_of(header, bytes().subspan(sizeof header));
  std::memcpy(memory.data(), &header, sizeof header);
  do {
    if (!file->write(bytes()).ok()) continue;
    void* const pages = mmap(nullptr, memory.size(), PROT_READ,
                             MAP_SHARED | MAP_POPULATE, file->fd(), 0);
    // Closing the file may be what reports that its bytes were not written.
    if (file->make_visible().ok()) path = file->path();
    if (pages == MAP_FAILED) continue;
    if (path.empty()) {
      munmap(pages, memory.size());
    } else {
      memory.share_pages(pages);
    }
  } while (path.empty() && create_file());
  file.reset();
  lock.reset();
}

ArrayFile::ArrayFile(const Sizes& sizes, std::span<const std::byte> image,
                     std::shared_ptr<const void> owner)
    : owner_(std::move(owner)) {
  std::size_t begin = sizeof(ArrayHeader);
  for (std::size_t i = 0; i < kMaxArrays; ++i) {
    arrays_[i] = image.subspan(begin, sizes[i]);
    begin += round_up(sizes[i], kAlignment);
  }
}

Result<ArrayFile> ArrayFile::load(const std::string& path, std::uint64_t key,
                                  const Sizes& sizes) {
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
  if (header.checksums != checksums_of(header, bytes.subspan(sizeof header))) {
    return damaged(path, ": the index is damaged");
  }
  ArrayFile arrays(sizes, bytes, file);
  arrays.loaded_path_ = path;
  return arrays;
}

const std::string& ArrayFile::path() const {
  static const std::string none;
  if (!image_) return loaded_path_;
  return image_->saving.wait() ? image_->path : none;
}

bool ArrayFile::has_file() const noexcept {
  return !image_ || image_->has_file;
}

Result<ArrayFile> ArrayFile::load_or_build(const Place& place,
                                           const Sizes& sizes,
                                           const Build& build) {
  const auto load_first = [&]() -> std::optional<ArrayFile> {
    for (const std::string& path : place.index_paths) {
      auto found = load(path, place.key, sizes);
      if (found.ok()) return std::move(found).value();
    }
    return std::nullopt;
  };
  for (const auto size : sizes) {
    if (size > kMaxArrayBytes) return no_memory(size);
  }
  if (auto found = load_first()) return *std::move(found);
  const auto image = std::make_shared<NewImage>();
  if (!place.index_paths.empty()) {
    const std::chrono::milliseconds build_time(body_bytes(sizes) /
                                               kSlowestBytesPerMs);
    image->lock.emplace(place.data_path, kMinWait + build_time);
    if (image->lock->was_contended()) {
      if (auto found = load_first()) return *std::move(found);
    }
  }
  TRY(image->build(sizes, build));
  image->paths.assign(place.index_paths.begin(), place.index_paths.end());
  image->has_file = image->create_file();
  if (image->has_file) {
    saving_pool().run(image->saving, [image, key = place.key, sizes] {
      image->save(key, sizes);
    });
  } else {
    image->lock.reset();
  }
  ArrayFile arrays(sizes, image->bytes(), image);
  arrays.image_ = image;
  return arrays;
}

}  // namespace gristmill
