#include "core/files/kept_index.hpp"

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

// Whether an index was built since memory was last returned to the system.
std::atomic<bool> memory_is_to_return{false};

std::optional<IndexFile> load(std::span<const std::string> kept,
                              const IndexFile::Origin& origin) {
  for (const std::string& path : kept) {
    auto found = IndexFile::load(path, origin);
    if (found.ok()) return std::move(found).value();
  }
  return std::nullopt;
}

// Builds the index and saves it.  Returns the saved index as a mapping, so that
// processes share its pages.
Result<IndexFile> make_kept(const IndexFile::Origin& origin,
                            std::span<const std::string> kept,
                            const std::function<Result<IndexFile>()>& make) {
  IndexFile index = TRY(make());
  for (const std::string& path : kept) {
    if (!index.save(path).ok()) continue;
    // Map the saved file, to share its pages with other processes.
    if (auto same = load({&path, 1}, origin)) return *std::move(same);
    break;
  }
  return index;
}

}  // namespace

Result<IndexFile> kept_index(const File& file, const IndexFile::Origin& origin,
                             std::span<const std::string> kept,
                             std::chrono::milliseconds longest,
                             const std::function<Result<IndexFile>()>& make) {
  if (auto index = load(kept, origin)) return *std::move(index);
  // If another process is building the same index, wait for it.
  const FileLock lock(file.path(), longest);
  if (lock.waited()) {
    if (auto index = load(kept, origin)) return *std::move(index);
  }
  memory_is_to_return = true;
  return make_kept(origin, kept, make);
}

Result<ScannedPlaces> kept_places(
    const File& file, std::uint64_t kind, std::span<const std::string> kept,
    const std::function<Result<PackedChunks>()>& scan) {
  const auto scanned = [&]() -> Result<PackedChunks> {
    PackedChunks places = TRY(scan());
    const std::string changed = file.change();
    if (changed.empty()) return places;
    return damaged(
        changed,
        ", during the scan for its records: wait until it is complete");
  };
  const IndexFile::Origin origin{FileStamp::of(file), kind};
  const auto make = [&]() -> Result<IndexFile> {
    PackedChunks places = TRY(scanned());
    const std::uint64_t count = places.size();
    return IndexFile{origin, count, 1, "", std::move(places)};
  };
  IndexFile index = TRY(kept_index(file, origin, kept, kMaxScanWait, make));
  // The index does not match the file, so it was forged.
  if (index.chunks.end() != file.size()) {
    return ScannedPlaces{TRY(scanned()), ""};
  }
  return ScannedPlaces{std::move(index.chunks), std::move(index.path)};
}

void return_memory_of_indices() {
#ifdef __GLIBC__
  if (memory_is_to_return.exchange(false)) malloc_trim(0);
#endif
}

}  // namespace gristmill
