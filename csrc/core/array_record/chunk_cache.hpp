// A ChunkCache keeps the most recently used decoded chunks.  Several files may
// share one.
//
// If several threads need the same chunk at once, one thread decodes it and the
// others wait.
//
// Thread safety: any thread may call any function.  Lock order: the mutex of an
// Entry, which its thread holds while it decodes, then mutex_.
//
// Fork: a forked child may inherit mutexes that stay locked forever.  In a
// child of a process that used the cache, get() therefore decodes without it.
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

  // Claims the cache for this process if no process owns it.  Returns true if
  // this process owns it.
  [[nodiscard]] bool claim_for_this_process() const;
  std::shared_ptr<Entry> find_or_add(std::uint64_t id);
  void record_size(std::uint64_t id, const std::shared_ptr<Entry>& entry,
                   std::optional<std::size_t> bytes);

  const std::size_t max_bytes_;
  // The process that used the cache first; 0 before.
  mutable std::atomic<pid_t> owner_{0};
  std::atomic<std::uint64_t> next_id_{0};
  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, CachedChunk> entries_ GUARDED_BY(mutex_);
  // Ids in the order of their last use, the most recent first.
  std::list<std::uint64_t> recent_ GUARDED_BY(mutex_);
  std::size_t held_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gristmill
