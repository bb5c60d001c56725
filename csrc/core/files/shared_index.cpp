#include "core/files/shared_index.hpp"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <atomic>
#include <optional>
#include <utility>

#include "core/files/file_lock.hpp"
#include "core/files/file_stamp.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// About the time to scan a file of a few GB.
constexpr std::chrono::milliseconds kMaxScanWait{2000};

// True if an index was built after the last call of
// return_memory_of_indices().
std::atomic<bool> has_build_memory{false};

// Returns the index at the first path that matches `origin`, if any.
std::optional<IndexFile> load_first(std::span<const std::string> index_paths,
                                    const IndexFile::Origin& origin) {
  for (const std::string& path : index_paths) {
    auto index = IndexFile::load(path, origin);
    if (index.ok()) return std::move(index).value();
  }
  return std::nullopt;
}

// Builds the index and saves it.  Returns the saved index as a mapping, so that
// processes share its pages.
Result<IndexFile> build_and_save(
    const IndexFile::Origin& origin, std::span<const std::string> index_paths,
    const std::function<Result<IndexFile>()>& build) {
  IndexFile index = TRY(build());
  for (const std::string& path : index_paths) {
    if (!index.save(path).ok()) continue;
    auto saved = IndexFile::load(path, origin);
    if (saved.ok()) return std::move(saved).value();
    break;
  }
  return index;
}

}  // namespace

Result<IndexFile> load_or_build_index(
    const File& file, const IndexFile::Origin& origin,
    std::span<const std::string> index_paths,
    std::chrono::milliseconds max_wait,
    const std::function<Result<IndexFile>()>& build) {
  if (auto index = load_first(index_paths, origin)) return *std::move(index);
  // If another thread or process is building the same index, wait for it.
  const FileLock lock(file.path(), max_wait);
  if (lock.was_contended()) {
    if (auto index = load_first(index_paths, origin)) return *std::move(index);
  }
  has_build_memory = true;
  return build_and_save(origin, index_paths, build);
}

Result<RecordPlaces> load_or_scan_places(
    const File& file, std::uint64_t kind,
    std::span<const std::string> index_paths,
    const std::function<Result<PackedChunks>()>& scan) {
  const auto scan_unchanged = [&]() -> Result<PackedChunks> {
    PackedChunks places = TRY(scan());
    const std::string changed = file.describe_change();
    if (changed.empty()) return places;
    return damaged(
        changed,
        ", during the scan for its records: wait until it is complete");
  };
  const IndexFile::Origin origin{FileStamp::of(file), kind};
  const auto build = [&]() -> Result<IndexFile> {
    PackedChunks places = TRY(scan_unchanged());
    const std::uint64_t count = places.size();
    return IndexFile{origin, count, /*group_size=*/1, /*options=*/"",
                     std::move(places)};
  };
  IndexFile index =
      TRY(load_or_build_index(file, origin, index_paths, kMaxScanWait, build));
  // An index that does not match the file was not saved by Gristmill.
  if (index.chunks.end() != file.size()) {
    return RecordPlaces{TRY(scan_unchanged()), ""};
  }
  return RecordPlaces{std::move(index.chunks), std::move(index.path)};
}

void return_memory_of_indices() {
#ifdef __GLIBC__
  if (has_build_memory.exchange(false)) malloc_trim(0);
#endif
}

}  // namespace gristmill
