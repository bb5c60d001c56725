#include "core/array_record/chunk_cache.hpp"

#include <unistd.h>

#include <utility>

namespace gristmill {
namespace {

Result<ChunkCache::Chunk> decode_chunk(const ChunkCache::Decode& decode) {
  auto chunk = std::make_shared<DecodedChunk>();
  TRY(decode(*chunk));
  return ChunkCache::Chunk(std::move(chunk));
}

}  // namespace

// The first process to use the cache owns it.  A forked child must not use it,
// because another thread may have held a lock during the fork.
bool ChunkCache::claim_for_this_process() const {
  const pid_t here = getpid();
  pid_t owner = 0;
  return owner_.compare_exchange_strong(owner, here) || owner == here;
}

Result<ChunkCache::Chunk> ChunkCache::get(std::uint64_t id,
                                          const Decode& decode) {
  if (max_bytes_ == 0 || !claim_for_this_process()) return decode_chunk(decode);
  const std::shared_ptr<Entry> entry = find_or_add(id);
  const MutexLock lock(entry->mutex);
  if (entry->result) return *entry->result;
  auto result = decode_chunk(decode);
  std::optional<std::size_t> bytes;
  if (result.ok()) {
    bytes = result.value()->held_bytes();
  } else if (result.status().code() == Code::kInvalidArgument) {
    // Keep the error: each record of this chunk would fail to decode again.
    bytes = sizeof(Entry) + result.status().message().size();
  }
  record_size(id, entry, bytes);
  if (bytes) entry->result = result;
  return result;
}

void ChunkCache::drop(std::uint64_t first, std::uint64_t count) {
  // A child does not use the cache, and its lock may be locked forever.
  if (owner_ != getpid()) return;
  const MutexLock lock(mutex_);
  for (auto at = recent_.begin(); at != recent_.end();) {
    const std::uint64_t id = *at;
    if (id - first >= count) {
      ++at;
      continue;
    }
    const auto found = entries_.find(id);
    held_bytes_ -= found->second.bytes;
    entries_.erase(found);
    at = recent_.erase(at);
  }
}

bool ChunkCache::has(std::uint64_t id) const {
  if (max_bytes_ == 0 || owner_ != getpid()) return false;
  const MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  return found != entries_.end() && found->second.bytes != 0;
}

std::size_t ChunkCache::held_bytes() const {
  if (owner_ != getpid()) return 0;
  const MutexLock lock(mutex_);
  return held_bytes_;
}

std::shared_ptr<ChunkCache::Entry> ChunkCache::find_or_add(std::uint64_t id) {
  const MutexLock lock(mutex_);
  CachedChunk& cached = entries_[id];
  if (cached.entry) {
    recent_.splice(recent_.begin(), recent_, cached.recent_position);
  } else {
    cached.entry = std::make_shared<Entry>();
    cached.recent_position = recent_.insert(recent_.begin(), id);
  }
  return cached.entry;
}

// Records the size of an entry, or drops the entry if `bytes` is empty.  Does
// nothing if the entry was evicted meanwhile: its thread already has the chunk.
void ChunkCache::record_size(std::uint64_t id,
                             const std::shared_ptr<Entry>& entry,
                             std::optional<std::size_t> bytes) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.entry != entry) return;
  if (!bytes) {
    recent_.erase(found->second.recent_position);
    entries_.erase(found);
    return;
  }
  found->second.bytes = *bytes;
  held_bytes_ += *bytes;
  while (held_bytes_ > max_bytes_ && recent_.size() > 1) {
    const auto oldest = entries_.find(recent_.back());
    held_bytes_ -= oldest->second.bytes;
    entries_.erase(oldest);
    recent_.pop_back();
  }
}

}  // namespace gristmill
