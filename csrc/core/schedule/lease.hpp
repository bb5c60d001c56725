// The parent's end of the units: publish, withdraw, take, free after an exit.
//
// A unit has two records: a Unit in shared memory, which the worker also
// writes, and a private Lease.  The parent decides by the Lease, which a dying
// worker cannot corrupt.  The indices of Units come from a private free list,
// so units may be taken in any order.
//
// Thread safety: external synchronization (the scheduler's mutex).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/memory/arena.hpp"
#include "core/memory/control.hpp"

namespace gristmill {

// The first outputs of a unit whose other outputs are still being computed.
struct Part {
  ArenaSlot* slot = nullptr;
  std::uint32_t outputs = 0;
  std::uint64_t bytes = 0;
  Position position_after;
};

struct Lease : Task {
  std::uint64_t id = 0;
  std::uint32_t unit_index = 0;  // of its Unit in shared memory
  // The number of the only worker that may claim it, + 1; 0 for any worker.
  std::uint32_t owner = 0;
  ArenaSlot* slot = nullptr;
  std::uint32_t attempts = 0;  // holders that exited while they computed it
  bool withdrawn = false;  // canceled; only its slot must still be recovered
  bool waits_for_memory = false;  // no slot of the requested size fits now
  bool poisoned = false;  // failed too often; no worker may claim it again
  // Parts that were copied from the holder's slot, oldest first.  The delivery
  // of the oldest has not begun.
  std::vector<Part> parts = {};
};

// The result that a holder committed or offered as a part.
struct Commit {
  UnitStatus status = UnitStatus::kOk;
  std::uint32_t outputs = 0;
  std::uint64_t bytes = 0;
  std::int64_t duration_ns = 0;
  Position position_after;  // empty: the holder wrote no valid position
};

class LeaseTable {
 public:
  // The region's control block is initialized already.  `arena_fd` is the file
  // that is mapped there, or -1; the caller keeps ownership.
  LeaseTable(Region region, int arena_fd);

  // Makes a unit free to be claimed.  The caller sets all fields of `lease`
  // except id and unit_index.  Returns the id, which is larger than all ids
  // before, or 0 if there is no memory for the position.
  // REQUIRES: has_room(), position_before has 1 to the region's
  // position_capacity integers.
  std::uint64_t publish(Lease lease, const Position& position_before);
  [[nodiscard]] bool has_room() const noexcept {
    return !free_unit_indices_.empty();
  }

  // REQUIRES: `id` was published, and its lease was not removed.
  [[nodiscard]] Lease& at(std::uint64_t id) { return leases_.at(id); }
  [[nodiscard]] UnitWord word(const Lease& lease) const noexcept {
    return {unit(lease).word.load(std::memory_order_acquire)};
  }
  [[nodiscard]] UnitState state(const Lease& lease) const noexcept {
    return word(lease).state();
  }

  // REQUIRES: state(lease) is kCommitted or kPart.
  [[nodiscard]] Commit commit_of(const Lease& lease) const;

  // Returns true if the worker handed the unit back because memory was missing.
  [[nodiscard]] bool is_refused(const Lease& lease) const noexcept {
    return state(lease) == UnitState::kCommitted &&
           unit(lease).status == UnitStatus::kNoMemory;
  }

  [[nodiscard]] bool is_computed(const Lease& lease) const noexcept {
    return state(lease) == UnitState::kCommitted && !is_refused(lease);
  }

  // Returns the number of bytes of the slot that its holder populated.
  // REQUIRES: the lease is committed, in part or as a whole; or its state is
  // kNeed; or its holder has exited.
  [[nodiscard]] std::uint64_t populated(const Lease& lease) const noexcept {
    return unit(lease).populated;
  }

  // Empties the unit's word and removes the lease.  The caller owns the slot
  // from then on.
  // REQUIRES: no worker will write the unit again: it is committed or poisoned,
  // or its holder has exited or waits for an answer (kNeed, kPart).
  void take(std::uint64_t id);

  // Withdraws a unit that no worker has claimed, removes its lease and returns
  // true; the caller then owns the slot.  Returns false if the unit is claimed.
  bool withdraw_free(std::uint64_t id);

  // Withdraws a unit in any state.  Returns true if the lease is removed
  // immediately; the caller then owns the slot.  Otherwise
  // collect_withdrawn() returns the lease later or, if the holder exits, the
  // caller takes it.
  bool withdraw(std::uint64_t id);

  // Takes a unit away from its holder, and wakes the holder if it waits.  The
  // caller owns the slot.  REQUIRES: state kNeed, kPart or kCommitted.
  void take_from_holder(std::uint64_t id);

  // Removes and returns the leases of withdrawn units whose holders committed,
  // or wait for an answer (kNeed, kPart); wakes the latter.
  [[nodiscard]] std::vector<Lease> collect_withdrawn();

  // Returns true if some worker computes a unit, so that memory may become
  // free.  A holder that offers a part counts; one that waits for a larger slot
  // does not.
  [[nodiscard]] bool has_running_unit() const noexcept;

  // Returns the ids of the units held by `worker` (leased, need, granted or
  // part), oldest first.
  [[nodiscard]] std::vector<std::uint64_t> units_held_by(
      std::uint32_t worker) const;

  // Returns the ids of the units whose holders offer a part, oldest first.
  [[nodiscard]] std::vector<std::uint64_t> units_with_part() const;

  // Adds the offered part, which was copied to `copy`, to the lease.  From now
  // on the unit consists of the remaining records, and the holder continues in
  // its slot.  REQUIRES: state(lease) is kPart, the unit is a range, and the
  // part ends in it.
  void take_part(Lease& lease, Commit commit, ArenaSlot* copy);

  // Declines the part: the holder keeps its outputs and continues.  REQUIRES:
  // state(lease) is kPart.
  void decline_part(Lease& lease);

  // Returns the ids of the units that wait for a larger slot, oldest first.
  [[nodiscard]] std::vector<std::uint64_t> units_waiting_for_memory() const;
  // Returns the size of the slot that the holder waits for.
  // REQUIRES: state(lease) is kNeed.
  [[nodiscard]] std::uint64_t requested_bytes(
      const Lease& lease) const noexcept {
    return unit(lease).requested_bytes;
  }

  // Gives the holder a larger slot.  REQUIRES: state(lease) is kNeed, and
  // `slot` is large enough.
  void grant(Lease& lease, ArenaSlot* slot);

  // Makes a unit free again, from another position if `position_before` is not
  // null.  Returns false, and changes nothing, if there is no memory for that
  // position.  If the holder exited, the caller has already incremented
  // lease.attempts.  A refused unit does not count as an attempt.  The caller
  // must wake the workers.
  // REQUIRES: the unit is refused; or its holder has exited; or it is free and
  // its owner has exited.
  [[nodiscard]] bool make_claimable_again(Lease& lease,
                                          const Position* position_before);

  // Prevents all further claims, and wakes the holder if it waits.
  // REQUIRES: no worker will write the unit again; see take().  A free unit may
  // be poisoned if its owner has exited.
  void poison(Lease& lease);

  // All leases, oldest first.
  [[nodiscard]] const std::map<std::uint64_t, Lease>& all() const noexcept {
    return leases_;
  }

 private:
  [[nodiscard]] Unit& unit(const Lease& lease) const noexcept {
    return region_.unit(lease.unit_index);
  }
  [[nodiscard]] bool set_position_before(
      const Lease& lease, const Position& position) const noexcept;
  void set_slot(Lease& lease, ArenaSlot* slot) const noexcept;
  // `holder` is the worker's number + 1, or 0; with kFree, it is lease.owner.
  void set_word(const Lease& lease, UnitState state,
                std::uint32_t holder) const noexcept;
  void erase(std::uint64_t id);

  const Region region_;
  const int arena_fd_;
  std::uint64_t next_id_ = 1;
  // The number of leases whose `withdrawn` is true.
  std::uint32_t withdrawn_count_ = 0;
  std::vector<std::uint32_t> free_unit_indices_;
  std::map<std::uint64_t, Lease> leases_;
};

}  // namespace gristmill
