#include "core/schedule/memory_policy.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace gristmill {

// The first guess of a unit's size, before one has been seen.
constexpr std::uint64_t kFirstUnitBytes = std::uint64_t{1} << 20;

ArenaSlot* MemoryPolicy::slot_for_next() {
  if (largest_ == 0) return arena_.take(kFirstUnitBytes);
  // Unit sizes vary a little.  With an eighth more, most need no second slot.
  ArenaSlot* const slot = arena_.take(largest_ + largest_ / 8);
  return slot != nullptr ? slot : arena_.take(largest_);
}

ArenaSlot* MemoryPolicy::copy_of(const ArenaSlot* slot, std::uint64_t bytes) {
  ArenaSlot* const copy = arena_.take(bytes);
  if (copy == nullptr) return nullptr;
  std::byte* const to = region_.base() + copy->offset;
  if (!region_.populate(to, bytes, arena_.fd())) {
    arena_.give_back(copy);
    return nullptr;
  }
  std::memcpy(to, region_.base() + slot->offset, bytes);
  arena_.charge_populated(copy, bytes);
  return copy;
}

void MemoryPolicy::record_used(std::uint64_t bytes) {
  largest_ = std::max(largest_, bytes);
}

bool MemoryPolicy::grant_all() {
  some_wait_ = false;
  for (const std::uint64_t id : leases_.units_waiting_for_memory()) {
    grant(leases_.at(id));
  }
  return !some_wait_;
}

bool MemoryPolicy::grant(Lease& lease) {
  arena_.charge_populated(lease.slot, leases_.populated(lease));
  const std::uint64_t needed = leases_.needed(lease);
  record_used(std::min(needed, arena_.memory_limit()));
  // The contents of the old slot are not needed, but its room may be.
  arena_.give_back(lease.slot);
  ArenaSlot* const slot = arena_.take(needed);
  if (slot != nullptr) {
    leases_.grant(lease, slot);
    return true;
  }
  lease.slot = arena_.take(1, true);
  lease.waits_for_memory = some_wait_ = true;
  return false;
}

// Returns the youngest unit, except `keep`, that can be evicted, or 0.
// Considers the units whose holders wait for memory if `waits`, else the units
// that no worker holds.
std::uint64_t MemoryPolicy::youngest(std::uint64_t keep, bool waits) const {
  std::uint64_t found = 0;
  for (const Stream& stream : order_.streams()) {
    if (stream.pending.empty()) continue;
    const Lease& lease = leases_.at(stream.pending.back());
    if (lease.id == keep || lease.id < found) continue;
    if (!lease.parts.empty()) continue;  // Its parts are due.
    const UnitState state = leases_.state(lease);
    // A worker may be unable to answer a request a second time.
    const bool evictable =
        waits ? state == UnitState::kNeed && lease.kind != UnitKind::kRequest
              : state == UnitState::kFree || state == UnitState::kCommitted;
    if (evictable) found = lease.id;
  }
  return found;
}

bool MemoryPolicy::evict(std::uint64_t keep) {
  for (;;) {
    std::uint64_t youngest = this->youngest(keep, false);
    if (youngest == 0) youngest = this->youngest(keep, true);
    if (youngest == 0) return false;
    const Lease lease = leases_.at(youngest);
    const UnitState state = leases_.state(lease);
    if (state == UnitState::kCommitted || state == UnitState::kNeed) {
      arena_.charge_populated(lease.slot, leases_.populated(lease));
      leases_.take_from_holder(youngest);
    } else if (!leases_.withdraw_free(youngest)) {
      continue;  // A worker has just claimed it.
    }
    order_.remove_youngest(lease);
    arena_.give_back(lease.slot);
    return true;
  }
}

std::optional<Shortage> MemoryPolicy::find_memory_for(const Lease& due) {
  while (Lease* const lease = blocking(due)) {
    if (!grant(*lease) && !evict(due.id)) {
      return shortage(leases_.needed(*lease));
    }
  }
  return std::nullopt;
}

// Returns the unit that needs memory before `due` can be computed, or nullptr.
// This is `due` itself if its holder waits for memory.  If `due` is free and
// all workers that may claim it wait for memory, it is a unit of one of them.
Lease* MemoryPolicy::blocking(const Lease& due) {
  if (!some_wait_) return nullptr;
  if (due.waits_for_memory) return &leases_.at(due.id);
  if (leases_.state(due) != UnitState::kFree) return nullptr;
  Lease* found = nullptr;
  std::uint32_t waiting = 0;
  bool owner_waits = false;
  for (const auto& [id, lease] : leases_.all()) {
    if (!lease.waits_for_memory) continue;
    found = &leases_.at(id);
    ++waiting;
    owner_waits |= leases_.word(lease).holder() == due.owner;
  }
  const bool all_wait = due.owner != 0 ? owner_waits : waiting == workers_;
  return all_wait ? found : nullptr;
}

void MemoryPolicy::retry_refused(const Stream& stream, std::size_t at,
                                 const Position* begins) {
  for (; at < stream.pending.size(); ++at) {
    Lease& lease = leases_.at(stream.pending[at]);
    if (leases_.is_refused(lease) && !leases_.free_again(lease, begins)) return;
    begins = nullptr;
  }
}

Shortage MemoryPolicy::shortage(std::uint64_t need) const {
  const std::uint64_t next = largest_ != 0 ? largest_ : kFirstUnitBytes;
  const std::vector<std::uint64_t> kept = arena_.viewed_sizes();
  return {need != 0 ? need : next, arena_.memory_limit(), arena_.charged(),
          kept.size(),
          std::accumulate(kept.begin(), kept.end(), std::uint64_t{0})};
}

}  // namespace gristmill
