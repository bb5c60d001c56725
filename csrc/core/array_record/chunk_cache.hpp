// A ChunkCache keeps decoded chunks, the most recently used ones.  Several
// files may share it.
//
// A chunk that several threads want at once is decoded by one of them while
// the others wait.
//
// Thread safety: any thread may call get().
//
// Fork: a child of a process that used the cache may inherit locks that nobody
// will open; there get() decodes without it.
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

  // Keeps chunks of up to `max_bytes` in all, and the last one in any case,
  // for it may hold many records that are about to be read; 0 keeps none.
  explicit ChunkCache(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns the first of `count` ids that nobody else has.
  std::uint64_t reserve(std::uint64_t count) {
    return next_id_.fetch_add(count, std::memory_order_relaxed);
  }

  // Lets go of the chunks of `count` ids from `first` on.
  void forget(std::uint64_t first, std::uint64_t count);

  // Returns the chunk `id`, by `decode` if it is not there.  That a chunk is
  // damaged is kept as well.
  Result<Chunk> get(std::uint64_t id, const Decode& decode);

  // True if get() would find the chunk, or that it is damaged.
  [[nodiscard]] bool has(std::uint64_t id) const;

  // Memory of the chunks that are kept.
  [[nodiscard]] std::size_t held_bytes() const;

 private:
  struct Entry {
    Mutex mutex;
    std::optional<Result<Chunk>> made GUARDED_BY(mutex);  // Set once.
  };
  struct Kept {
    std::shared_ptr<Entry> entry;
    std::size_t bytes = 0;  // 0 while decoding.
    std::list<std::uint64_t>::iterator place;
  };

  [[nodiscard]] bool is_ours() const;
  std::shared_ptr<Entry> find_or_add(std::uint64_t id);
  void settle(std::uint64_t id, const std::shared_ptr<Entry>& entry,
              std::optional<std::size_t> bytes);

  const std::size_t max_bytes_;
  mutable std::atomic<pid_t> owner_{0};
  std::atomic<std::uint64_t> next_id_{0};
  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, Kept> entries_ GUARDED_BY(mutex_);
  // The most recently used first.
  std::list<std::uint64_t> recent_ GUARDED_BY(mutex_);
  std::size_t held_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gristmill
