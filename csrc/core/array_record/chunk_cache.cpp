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

ChunkCache::Entries* ChunkCache::own_entries() const {
  Entries* const entries = entries_;
  return entries != nullptr && entries->owner == getpid() ? entries : nullptr;
}

// Returns the entries of this process.
ChunkCache::Entries& ChunkCache::add_own_entries() {
  Entries* entries = entries_;
  if (entries != nullptr && entries->owner == getpid()) return *entries;
  auto own = std::make_unique<Entries>(getpid());
  // If this fails, another thread of this process has added them.
  if (entries_.compare_exchange_strong(entries, own.get()))
    return *own.release();
  return *entries;
}

Result<ChunkCache::Chunk> ChunkCache::get(std::uint64_t id,
                                          const Decode& decode) {
  if (max_bytes_ == 0) return decode_chunk(decode);
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
  Entries* const entries = own_entries();
  if (entries == nullptr) return;
  const MutexLock lock(entries->mutex);
  for (auto at = entries->recent.begin(); at != entries->recent.end();) {
    const std::uint64_t id = *at;
    if (id - first >= count) {
      ++at;
      continue;
    }
    const auto found = entries->by_id.find(id);
    entries->held_bytes -= found->second.bytes;
    entries->by_id.erase(found);
    at = entries->recent.erase(at);
  }
}

bool ChunkCache::has(std::uint64_t id) const {
  Entries* const entries = own_entries();
  if (entries == nullptr) return false;
  const MutexLock lock(entries->mutex);
  const auto found = entries->by_id.find(id);
  return found != entries->by_id.end() && found->second.bytes != 0;
}

std::size_t ChunkCache::held_bytes() const {
  Entries* const entries = own_entries();
  if (entries == nullptr) return 0;
  const MutexLock lock(entries->mutex);
  return entries->held_bytes;
}

std::shared_ptr<ChunkCache::Entry> ChunkCache::find_or_add(std::uint64_t id) {
  Entries& entries = add_own_entries();
  const MutexLock lock(entries.mutex);
  CachedChunk& cached = entries.by_id[id];
  if (cached.entry) {
    entries.recent.splice(entries.recent.begin(), entries.recent,
                          cached.recent_position);
  } else {
    cached.entry = std::make_shared<Entry>();
    cached.recent_position = entries.recent.insert(entries.recent.begin(), id);
  }
  return cached.entry;
}

// Records the size of an entry, or drops the entry if `bytes` is empty.  Does
// nothing if the entry was evicted meanwhile, or if this process was forked
// meanwhile: its thread already has the chunk.
void ChunkCache::record_size(std::uint64_t id,
                             const std::shared_ptr<Entry>& entry,
                             std::optional<std::size_t> bytes) {
  Entries* const entries = own_entries();
  if (entries == nullptr) return;
  const MutexLock lock(entries->mutex);
  const auto found = entries->by_id.find(id);
  if (found == entries->by_id.end() || found->second.entry != entry) return;
  if (!bytes) {
    entries->recent.erase(found->second.recent_position);
    entries->by_id.erase(found);
    return;
  }
  found->second.bytes = *bytes;
  entries->held_bytes += *bytes;
  while (entries->held_bytes > max_bytes_ && entries->recent.size() > 1) {
    const auto oldest = entries->by_id.find(entries->recent.back());
    entries->held_bytes -= oldest->second.bytes;
    entries->by_id.erase(oldest);
    entries->recent.pop_back();
  }
}

}  // namespace gristmill
