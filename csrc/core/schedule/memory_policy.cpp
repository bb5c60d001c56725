#include "core/schedule/memory_policy.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace gristmill {

// The slot size of the first units, before the size of any unit is known.
constexpr std::uint64_t kFirstUnitBytes = std::uint64_t{1} << 20;

ArenaSlot* MemoryPolicy::take_slot_for_next() {
  if (largest_unit_bytes_ == 0) return arena_.take(kFirstUnitBytes);
  // Unit sizes vary a little.  With an eighth more, most need no second slot.
  ArenaSlot* const slot =
      arena_.take(largest_unit_bytes_ + largest_unit_bytes_ / 8);
  return slot != nullptr ? slot : arena_.take(largest_unit_bytes_);
}

ArenaSlot* MemoryPolicy::copy_slot(const ArenaSlot* slot, std::uint64_t bytes) {
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
  largest_unit_bytes_ = std::max(largest_unit_bytes_, bytes);
}

bool MemoryPolicy::grant_all() {
  has_waiting_holder_ = false;
  for (const std::uint64_t id : leases_.units_waiting_for_memory()) {
    grant(leases_.at(id));
  }
  return !has_waiting_holder_;
}

// Gives the holder the slot that it requested.  Returns false if that does not
// fit; the lease then has a small slot until the next attempt.
bool MemoryPolicy::grant(Lease& lease) {
  arena_.charge_populated(lease.slot, leases_.populated(lease));
  const std::uint64_t requested_bytes = leases_.requested_bytes(lease);
  record_used(std::min(requested_bytes, arena_.memory_limit()));
  // The contents of the old slot are not needed, but its room may be.
  arena_.give_back(lease.slot);
  ArenaSlot* const slot = arena_.take(requested_bytes);
  if (slot != nullptr) {
    leases_.grant(lease, slot);
    return true;
  }
  lease.slot = arena_.take(1, true);
  lease.waits_for_memory = has_waiting_holder_ = true;
  return false;
}

// Returns the youngest unit, except `keep`, that can be evicted, or 0.  If
// `waiting`, considers the units whose holders wait for memory, else the units
// that no worker holds.
std::uint64_t MemoryPolicy::find_evictable(std::uint64_t keep,
                                           bool waiting) const {
  std::uint64_t youngest = 0;
  for (const Stream& stream : order_.streams()) {
    if (stream.pending.empty()) continue;
    const Lease& lease = leases_.at(stream.pending.back());
    if (lease.id == keep || lease.id < youngest) continue;
    if (!lease.parts.empty()) continue;  // Its parts are due.
    const UnitState state = leases_.state(lease);
    // A worker may be unable to answer a request a second time.
    const bool evictable =
        waiting ? state == UnitState::kNeed && lease.kind != UnitKind::kRequest
                : state == UnitState::kFree || state == UnitState::kCommitted;
    if (evictable) youngest = lease.id;
  }
  return youngest;
}

bool MemoryPolicy::evict(std::uint64_t keep) {
  for (;;) {
    std::uint64_t id = find_evictable(keep, false);
    if (id == 0) id = find_evictable(keep, true);
    if (id == 0) return false;
    const Lease lease = leases_.at(id);
    const UnitState state = leases_.state(lease);
    if (state == UnitState::kCommitted || state == UnitState::kNeed) {
      arena_.charge_populated(lease.slot, leases_.populated(lease));
      leases_.take_from_holder(id);
    } else if (!leases_.withdraw_free(id)) {
      continue;  // A worker has just claimed it.
    }
    order_.remove_youngest(lease);
    arena_.give_back(lease.slot);
    return true;
  }
}

std::optional<Shortage> MemoryPolicy::find_memory_for(const Lease& due) {
  while (Lease* const lease = find_blocking_unit(due)) {
    if (!grant(*lease) && !evict(due.id)) {
      return shortage(leases_.requested_bytes(*lease));
    }
  }
  return std::nullopt;
}

// Returns the unit that needs memory before `due` can be computed, or nullptr.
// This is `due` itself if its holder waits for memory.  If `due` is free and
// all workers that may claim it wait for memory, it is the youngest unit whose
// holder waits, of any worker.
Lease* MemoryPolicy::find_blocking_unit(const Lease& due) {
  if (!has_waiting_holder_) return nullptr;
  if (due.waits_for_memory) return &leases_.at(due.id);
  if (leases_.state(due) != UnitState::kFree) return nullptr;
  Lease* waiting_lease = nullptr;
  std::uint32_t waiting_count = 0;
  bool owner_waits = false;
  for (const auto& [id, lease] : leases_.all()) {
    if (!lease.waits_for_memory) continue;
    waiting_lease = &leases_.at(id);
    ++waiting_count;
    owner_waits |= leases_.word(lease).holder() == due.owner;
  }
  const bool all_wait =
      due.owner != 0 ? owner_waits : waiting_count == workers_;
  return all_wait ? waiting_lease : nullptr;
}

void MemoryPolicy::retry_refused(const Stream& stream, std::size_t first,
                                 const Position* position_before) {
  for (std::size_t i = first; i < stream.pending.size(); ++i) {
    Lease& lease = leases_.at(stream.pending[i]);
    if (leases_.is_refused(lease) &&
        !leases_.make_claimable_again(lease, position_before)) {
      return;
    }
    position_before = nullptr;
  }
}

Shortage MemoryPolicy::shortage(std::uint64_t needed_bytes) const {
  if (needed_bytes == 0) {
    needed_bytes =
        largest_unit_bytes_ != 0 ? largest_unit_bytes_ : kFirstUnitBytes;
  }
  const std::vector<std::uint64_t> viewed = arena_.viewed_sizes();
  return {needed_bytes, arena_.memory_limit(), arena_.charged(), viewed.size(),
          std::accumulate(viewed.begin(), viewed.end(), std::uint64_t{0})};
}

}  // namespace gristmill
