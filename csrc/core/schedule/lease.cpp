#include "core/schedule/lease.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/futex.hpp"
#include "core/base/populate.hpp"

namespace gristmill {

LeaseTable::LeaseTable(Region region, int arena_fd)
    : region_(region),
      arena_fd_(arena_fd),
      cursor_capacity_(region.control().cursor_capacity) {
  for (std::uint32_t i = region.control().units; i-- > 0;) unused_.push_back(i);
}

bool LeaseTable::set_cursor_in(std::uint32_t cell,
                               const Cursor& cursor) const noexcept {
  assert(!cursor.empty() && cursor.size() <= cursor_capacity_);
  std::int64_t* const to = region_.cursor_in(cell);
  if (cursor_capacity_ > kSmallCursor &&
      !populate(region_.base(), arena_fd_, region_.offset_of(to),
                cursor.size() * sizeof(std::int64_t))) {
    return false;
  }
  std::copy(cursor.begin(), cursor.end(), to);
  region_.unit(cell).cursor_in = static_cast<std::uint32_t>(cursor.size());
  return true;
}

void LeaseTable::set_slot(Unit& unit, const ArenaSlot& slot) const noexcept {
  unit.offset = slot.offset;
  unit.capacity = slot.capacity;
  unit.populated = slot.populated;
}

std::uint64_t LeaseTable::publish(Lease lease, const Cursor& cursor_in) {
  lease.cell = unused_.back();
  if (!set_cursor_in(lease.cell, cursor_in)) return 0;
  lease.id = next_id_++;
  unused_.pop_back();
  Unit& unit = region_.unit(lease.cell);
  unit.stream = lease.stream;
  unit.kind = lease.kind;
  unit.first = lease.first;
  unit.count = lease.count;
  unit.prev = lease.prev;
  set_slot(unit, *lease.slot);
  unit.word.store(
      UnitWord::make(lease.id, 0, UnitState::kFree, lease.owner).bits,
      std::memory_order_release);
  const std::uint64_t id = lease.id;
  leases_.emplace(id, lease);
  return id;
}

UnitWord LeaseTable::word(const Lease& lease) const noexcept {
  return {region_.unit(lease.cell).word.load(std::memory_order_acquire)};
}

Commit LeaseTable::commit_of(const Lease& lease) const {
  const Unit& unit = region_.unit(lease.cell);
  Commit commit;
  commit.status = unit.status;
  commit.outputs = unit.outputs;
  commit.bytes = unit.bytes;
  if (unit.cursor_out <= cursor_capacity_) {
    const std::int64_t* const from = region_.cursor_out(lease.cell);
    commit.cursor_out.assign(from, from + unit.cursor_out);
  }
  return commit;
}

bool LeaseTable::refused(const Lease& lease) const noexcept {
  return state(lease) == UnitState::kCommitted &&
         region_.unit(lease.cell).status == UnitStatus::kNoMemory;
}

std::uint64_t LeaseTable::populated(const Lease& lease) const noexcept {
  return region_.unit(lease.cell).populated;
}

void LeaseTable::forget(std::uint64_t id) {
  const auto found = leases_.find(id);
  if (found->second.withdrawn) --withdrawn_;
  unused_.push_back(found->second.cell);
  leases_.erase(found);
}

void LeaseTable::take(std::uint64_t id) {
  region_.unit(at(id).cell).word.store(0, std::memory_order_release);
  forget(id);
}

bool LeaseTable::withdraw_free(std::uint64_t id) {
  const Lease& lease = at(id);
  UnitWord seen = word(lease);
  if (seen.state() != UnitState::kFree) return false;
  if (!region_.unit(lease.cell)
           .word.compare_exchange_strong(seen.bits, 0,
                                         std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
    return false;
  }
  forget(id);
  return true;
}

bool LeaseTable::withdraw(std::uint64_t id) {
  if (withdraw_free(id)) return true;
  Lease& lease = at(id);
  if (lease.poisoned || state(lease) == UnitState::kCommitted) {
    take(id);
    return true;
  }
  lease.withdrawn = true;
  ++withdrawn_;
  return false;
}

std::vector<Lease> LeaseTable::collect_withdrawn() {
  std::vector<Lease> done;
  if (withdrawn_ == 0) return done;
  for (const auto& [id, lease] : leases_) {
    if (!lease.withdrawn) continue;
    const UnitState now = state(lease);
    if (now == UnitState::kCommitted || now == UnitState::kNeed) {
      done.push_back(lease);
    }
  }
  for (const Lease& lease : done) {
    auto& word = region_.unit(lease.cell).word;
    // The holder of a needy unit sees that it lost it, and looks for another.
    word.store(0, std::memory_order_release);
    futex_wake(&word, kEverybody);
    forget(lease.id);
  }
  return done;
}

std::vector<std::uint64_t> LeaseTable::held_by(std::uint32_t worker) const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, lease] : leases_) {
    const UnitWord now = word(lease);
    if (now.holder() != worker + 1) continue;
    if (now.state() == UnitState::kLeased || now.state() == UnitState::kNeed ||
        now.state() == UnitState::kGranted) {
      ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<std::uint64_t> LeaseTable::needy() const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, lease] : leases_) {
    if (state(lease) == UnitState::kNeed) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::uint64_t LeaseTable::needed(const Lease& lease) const noexcept {
  return region_.unit(lease.cell).needed;
}

void LeaseTable::grant(Lease& lease, ArenaSlot* slot) {
  Unit& unit = region_.unit(lease.cell);
  const UnitWord now = word(lease);
  lease.slot = slot;
  lease.waits_for_memory = false;
  set_slot(unit, *slot);
  unit.word.store(now.with(UnitState::kGranted, now.holder()).bits,
                  std::memory_order_release);
  // Always: the holder may be about to sleep, and nothing says so.
  futex_wake(&unit.word, kEverybody);
}

bool LeaseTable::free_again(Lease& lease, const Cursor* cursor_in) {
  if (cursor_in != nullptr && !set_cursor_in(lease.cell, *cursor_in)) {
    return false;
  }
  Unit& unit = region_.unit(lease.cell);
  lease.waits_for_memory = false;
  set_slot(unit, *lease.slot);
  unit.word.store(
      UnitWord::make(lease.id, lease.attempts, UnitState::kFree, lease.owner)
          .bits,
      std::memory_order_release);
  return true;
}

void LeaseTable::poison(Lease& lease) {
  lease.poisoned = true;
  region_.unit(lease.cell)
      .word.store(
          UnitWord::make(lease.id, lease.attempts, UnitState::kEmpty, 0).bits,
          std::memory_order_release);
}

}  // namespace gristmill
