#include "core/files/kept_index.hpp"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <optional>
#include <utility>

#include "core/files/file_lock.hpp"

namespace gristmill {
namespace {

std::optional<IndexFile> load(std::span<const std::string> kept,
                              const IndexFile::Origin& origin) {
  for (const std::string& path : kept) {
    auto found = IndexFile::load(path, origin);
    if (found.ok()) return std::move(found).value();
  }
  return std::nullopt;
}

// Gives back the memory in which an index was made: each thread that reads
// would keep tens of MB of it for the next one.
void give_memory_back() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// Makes the index; what others have of it is mapped.
Result<IndexFile> make_kept(const IndexFile::Origin& origin,
                            std::span<const std::string> kept,
                            const std::function<Result<IndexFile>()>& make) {
  IndexFile index = TRY(make());
  for (const std::string& path : kept) {
    if (!index.save(path).ok()) continue;
    // As others have it: its pages are theirs, too.
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
  // While another process makes the same index, wait for that.
  const FileLock lock(file.path(), longest);
  if (lock.waited()) {
    if (auto index = load(kept, origin)) return *std::move(index);
  }
  auto index = make_kept(origin, kept, make);
  give_memory_back();
  return index;
}

}  // namespace gristmill
