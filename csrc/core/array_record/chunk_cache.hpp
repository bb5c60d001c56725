// A ChunkCache keeps the most recently used decoded chunks.  Several files may
// share one.
//
// If several threads need the same chunk at once, one thread decodes it and the
// others wait.
//
// Thread safety: any thread may call any function.  Lock order: the mutex of an
// Entry, which its thread holds while it decodes, then that of the Entries.
//
// Fork: a forked child may inherit mutexes that stay locked forever.  The cache
// of a child is therefore empty at first, and the entries that it inherited are
// neither used nor freed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

#include "core/array_record/decoded_chunk.hpp"
#include "core/base/mutex.hpp"
#include "core/base/status.hpp"

namespace gristmill {

class ChunkCache {
 public:
  using Chunk = std::shared_ptr<const DecodedChunk>;
  using Decode = std::function<Status(DecodedChunk&)>;

  // Keeps at most `max_bytes` of chunks, but always the most recently used one,
  // even if it is larger: it may hold many records that will be read soon.  0
  // disables the cache.
  explicit ChunkCache(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  ~ChunkCache() { delete own_entries(); }
  ChunkCache(const ChunkCache&) = delete;
  ChunkCache& operator=(const ChunkCache&) = delete;

  // Returns the first of `count` new ids that no other caller gets.
  std::uint64_t reserve(std::uint64_t count) {
    return next_id_.fetch_add(count, std::memory_order_relaxed);
  }

  // Drops the chunks with the ids [first, first + count).
  void drop(std::uint64_t first, std::uint64_t count);

  // Returns chunk `id`.  Calls `decode` first if the chunk is not cached.  The
  // cache also keeps the error of a damaged chunk.
  Result<Chunk> get(std::uint64_t id, const Decode& decode);

  // Returns true if the cache holds the chunk, or the error of a damaged chunk.
  [[nodiscard]] bool has(std::uint64_t id) const;

  // Returns the memory of all cached chunks, in bytes.
  [[nodiscard]] std::size_t held_bytes() const;

 private:
  struct Entry {
    Mutex mutex;
    std::optional<Result<Chunk>> result GUARDED_BY(mutex);  // Set once.
  };
  struct CachedChunk {
    std::shared_ptr<Entry> entry;
    std::size_t bytes = 0;  // 0 until decoding has finished.
    std::list<std::uint64_t>::iterator recent_position;
  };

  // The entries of one process.
  struct Entries {
    explicit Entries(pid_t process) : owner(process) {}

    const pid_t owner;
    Mutex mutex;
    std::unordered_map<std::uint64_t, CachedChunk> by_id GUARDED_BY(mutex);
    // Ids in the order of their last use, the most recent first.
    std::list<std::uint64_t> recent GUARDED_BY(mutex);
    std::size_t held_bytes GUARDED_BY(mutex) = 0;
  };

  // Returns the entries of this process, or null if it has none yet.
  [[nodiscard]] Entries* own_entries() const;
  Entries& add_own_entries();
  std::shared_ptr<Entry> find_or_add(std::uint64_t id);
  void record_size(std::uint64_t id, const std::shared_ptr<Entry>& entry,
                   std::optional<std::size_t> bytes);

  const std::size_t max_bytes_;
  std::atomic<std::uint64_t> next_id_{0};
  // The process that used the cache last: this one, or the one it was forked
  // from.  Null before the first use.
  std::atomic<Entries*> entries_{nullptr};
};

}  // namespace gristmill
