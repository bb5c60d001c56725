#include "core/schedule/lease.hpp"

#include <algorithm>
#include <utility>

#include "core/base/futex.hpp"

namespace gristmill {

LeaseTable::LeaseTable(Region region, int arena_fd)
    : region_(region), arena_fd_(arena_fd) {
  for (std::uint32_t i = region.control().units; i-- > 0;)
    free_unit_indices_.push_back(i);
}

bool LeaseTable::set_position_before(const Lease& lease,
                                     const Position& position) const noexcept {
  if (!region_.store(position, region_.position_before(lease.unit_index),
                     arena_fd_)) {
    return false;
  }
  unit(lease).position_before = static_cast<std::uint32_t>(position.size());
  return true;
}

void LeaseTable::set_slot(Lease& lease, ArenaSlot* slot) const noexcept {
  lease.slot = slot;
  lease.waits_for_memory = false;
  unit(lease).offset = slot->offset;
  unit(lease).capacity = slot->capacity;
  unit(lease).populated = slot->populated;
}

void LeaseTable::set_word(const Lease& lease, UnitState state,
                          std::uint32_t holder) const noexcept {
  unit(lease).word.store(
      UnitWord::make(lease.id, lease.attempts, state, holder).bits,
      std::memory_order_release);
}

std::uint64_t LeaseTable::publish(Lease lease,
                                  const Position& position_before) {
  lease.unit_index = free_unit_indices_.back();
  if (!set_position_before(lease, position_before)) return 0;
  lease.id = next_id_++;
  free_unit_indices_.pop_back();
  unit(lease).task = lease;
  set_slot(lease, lease.slot);
  set_word(lease, UnitState::kFree, lease.owner);
  const std::uint64_t id = lease.id;
  leases_.emplace(id, std::move(lease));
  return id;
}

Commit LeaseTable::commit_of(const Lease& lease) const {
  const Unit& unit = this->unit(lease);
  Commit commit{unit.status, unit.outputs, unit.bytes, unit.duration_ns, {}};
  if (unit.position_after <= region_.control().position_capacity) {
    const std::int64_t* const from = region_.position_after(lease.unit_index);
    commit.position_after.assign(from, from + unit.position_after);
  }
  return commit;
}

void LeaseTable::erase(std::uint64_t id) {
  const Lease& lease = at(id);
  if (lease.withdrawn) --withdrawn_count_;
  free_unit_indices_.push_back(lease.unit_index);
  leases_.erase(id);
}

void LeaseTable::take(std::uint64_t id) {
  unit(at(id)).word.store(0, std::memory_order_release);
  erase(id);
}

bool LeaseTable::withdraw_free(std::uint64_t id) {
  const Lease& lease = at(id);
  UnitWord expected = word(lease);
  if (expected.state() != UnitState::kFree ||
      !unit(lease).word.compare_exchange_strong(expected.bits, 0,
                                                std::memory_order_acq_rel,
                                                std::memory_order_acquire)) {
    return false;
  }
  erase(id);
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
  ++withdrawn_count_;
  return false;
}

void LeaseTable::take_from_holder(std::uint64_t id) {
  std::atomic<std::uint64_t>& word = unit(at(id)).word;
  take(id);
  futex_wake(&word, kAllSleepers);
}

std::vector<Lease> LeaseTable::collect_withdrawn() {
  std::vector<Lease> collected;
  if (withdrawn_count_ == 0) return collected;
  for (const auto& [id, lease] : leases_) {
    if (!lease.withdrawn) continue;
    const UnitState state = this->state(lease);
    if (state == UnitState::kCommitted || state == UnitState::kNeed ||
        state == UnitState::kPart) {
      collected.push_back(lease);
    }
  }
  for (const Lease& lease : collected) take_from_holder(lease.id);
  return collected;
}

bool LeaseTable::has_running_unit() const noexcept {
  return std::ranges::any_of(leases_, [this](const auto& entry) {
    const UnitState state = this->state(entry.second);
    return state == UnitState::kLeased || state == UnitState::kGranted ||
           state == UnitState::kPart;
  });
}

std::vector<std::uint64_t> LeaseTable::units_held_by(
    std::uint32_t worker) const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, lease] : leases_) {
    const UnitWord word = this->word(lease);
    if (word.holder() != worker + 1) continue;
    if (word.state() != UnitState::kFree &&
        word.state() != UnitState::kCommitted) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::vector<std::uint64_t> LeaseTable::units_with_part() const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, lease] : leases_) {
    if (state(lease) == UnitState::kPart) ids.push_back(id);
  }
  return ids;
}

void LeaseTable::take_part(Lease& lease, Commit commit, ArenaSlot* copy) {
  lease.count -= commit.position_after.front() - lease.first;
  lease.first = commit.position_after.front();
  // The remaining records have not been attempted before.
  lease.attempts = 0;
  // Cannot fail: publish() has allocated the page of this one integer.
  static_cast<void>(set_position_before(lease, commit.position_after));
  lease.parts.push_back(
      {copy, commit.outputs, commit.bytes, std::move(commit.position_after)});
  unit(lease).task = lease;
  grant(lease, lease.slot);
}

void LeaseTable::decline_part(Lease& lease) { grant(lease, lease.slot); }

std::vector<std::uint64_t> LeaseTable::units_waiting_for_memory() const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, lease] : leases_) {
    if (state(lease) == UnitState::kNeed) ids.push_back(id);
  }
  return ids;
}

void LeaseTable::grant(Lease& lease, ArenaSlot* slot) {
  set_slot(lease, slot);
  set_word(lease, UnitState::kGranted, word(lease).holder());
  // Always wake: the holder may be about to sleep, which is not visible here.
  futex_wake(&unit(lease).word, kAllSleepers);
}

bool LeaseTable::make_claimable_again(Lease& lease,
                                      const Position* position_before) {
  if (position_before != nullptr &&
      !set_position_before(lease, *position_before))
    return false;
  set_slot(lease, lease.slot);
  set_word(lease, UnitState::kFree, lease.owner);
  return true;
}

void LeaseTable::poison(Lease& lease) {
  lease.poisoned = true;
  lease.waits_for_memory = false;
  set_word(lease, UnitState::kEmpty, 0);
  futex_wake(&unit(lease).word, kAllSleepers);
}

}  // namespace gristmill
