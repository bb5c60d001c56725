// The parent's end of the units: publish, withdraw, take, free after an exit.
//
// A unit lives in a cell of shared memory and in a private Lease.  What the
// parent needs for a decision is read from the Lease; a worker that is killed
// cannot touch it.  Unit cells come from a private free list, so units may be
// taken in any order.
//
// Thread safety: external synchronization (the scheduler's mutex).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/memory/arena.hpp"
#include "core/memory/control.hpp"

namespace gristmill {

// The first outputs of a unit that is still computed.
struct Part {
  ArenaSlot* slot = nullptr;
  std::uint32_t outputs = 0;
  std::uint64_t bytes = 0;
  Position position_after;
};

struct Lease : Task {
  std::uint64_t id = 0;
  std::uint32_t cell = 0;
  std::uint32_t owner = 0;  // worker + 1, or 0 for anybody
  ArenaSlot* slot = nullptr;
  std::uint32_t attempts = 0;  // holders that exited in it
  bool withdrawn = false;  // its commit is awaited only to get the slot back
  bool waits_for_memory = false;  // needs a larger slot than there is room for
  bool poisoned = false;          // never leased again
  std::vector<Part> parts = {};   // taken, and not yet opened
};

// What a holder committed.
struct Commit {
  UnitStatus status = UnitStatus::kOk;
  std::uint32_t outputs = 0;
  std::uint64_t bytes = 0;
  std::int64_t took_ns = 0;
  Position position_after;  // empty: the holder wrote nothing that can be one
};

class LeaseTable {
 public:
  // The region's control block is set up already.  `arena_fd` is the file that
  // is mapped there, or -1; it stays the caller's.
  LeaseTable(Region region, int arena_fd);

  // Makes a unit free to be claimed.  Fields of `lease` but id and cell are the
  // caller's; returns the id, larger than any before, or 0 if there is no
  // memory for the position.
  // REQUIRES: has_room(), position_before has 1 to the region's
  // position_capacity integers.
  std::uint64_t publish(Lease lease, const Position& position_before);
  [[nodiscard]] bool has_room() const noexcept { return !unused_.empty(); }

  // REQUIRES: `id` was published and not yet taken or withdrawn.
  [[nodiscard]] Lease& at(std::uint64_t id) { return leases_.at(id); }
  [[nodiscard]] UnitWord word(const Lease& lease) const noexcept {
    return {unit(lease).word.load(std::memory_order_acquire)};
  }
  [[nodiscard]] UnitState state(const Lease& lease) const noexcept {
    return word(lease).state();
  }

  // REQUIRES: state(lease) is kCommitted or kPart.
  [[nodiscard]] Commit commit_of(const Lease& lease) const;

  // Whether it was handed back, not computed, for want of memory; else
  // computed.
  [[nodiscard]] bool refused(const Lease& lease) const noexcept {
    return state(lease) == UnitState::kCommitted &&
           unit(lease).status == UnitStatus::kNoMemory;
  }

  [[nodiscard]] bool computed(const Lease& lease) const noexcept {
    return state(lease) == UnitState::kCommitted && !refused(lease);
  }

  // Bytes of the slot that its holder populated.
  // REQUIRES: the lease is committed, in part or as a whole, waits with kNeed
  // or its holder has exited.
  [[nodiscard]] std::uint64_t populated(const Lease& lease) const noexcept {
    return unit(lease).populated;
  }

  // Empties the cell of a committed or poisoned unit and forgets the lease; the
  // slot is the caller's.
  void take(std::uint64_t id);

  // Takes back a unit that nobody has claimed; false when somebody has.
  // On success the lease is forgotten and its slot is the caller's.
  bool withdraw_free(std::uint64_t id);

  // Gives up a unit whatever its state.  Returns true if it is forgotten now
  // and its slot is the caller's; else collect_withdrawn() will have it.
  bool withdraw(std::uint64_t id);

  // Takes back a unit and wakes its holder if that waits: it has lost the unit.
  // The slot is the caller's.  REQUIRES: state kNeed, kPart or kCommitted.
  void take_from_holder(std::uint64_t id);

  // Leases of withdrawn units whose holders are done; they are forgotten.
  [[nodiscard]] std::vector<Lease> collect_withdrawn();

  // Returns true if a worker computes a unit without waiting for memory.  Once
  // the unit is committed, the parent can reuse its memory.
  [[nodiscard]] bool has_work() const noexcept;

  // Ids of units held by `worker` (leased, need, granted or part), oldest
  // first.
  [[nodiscard]] std::vector<std::uint64_t> held_by(std::uint32_t worker) const;

  // Ids of the units whose holders offer a part, oldest first.
  [[nodiscard]] std::vector<std::uint64_t> with_part() const;

  // Adds the part that is offered, and copied to `copy`, to the lease.  The
  // rest of the records is the unit from now on; the holder goes on in its
  // slot. REQUIRES: state(lease) is kPart, the unit is a range, and the part
  // ends in it.
  void take_part(Lease& lease, Commit commit, ArenaSlot* copy);

  // Leaves the part to the holder.  REQUIRES: state(lease) is kPart.
  void refuse_part(Lease& lease);

  // Ids of the units that wait for a larger slot, oldest first.
  [[nodiscard]] std::vector<std::uint64_t> needy() const;
  [[nodiscard]] std::uint64_t needed(const Lease& lease) const noexcept {
    return unit(lease).needed;
  }

  // Answers a need.  REQUIRES: state(lease) is kNeed, slot is large enough.
  void grant(Lease& lease, ArenaSlot* slot);

  // Frees a unit again, one attempt later if its holder exited in it, from
  // another position if that is given.  False, and nothing has changed, if
  // there is no memory for that.
  // REQUIRES: it is refused; or its holder or, if it is free, its owner has
  // exited.
  [[nodiscard]] bool free_again(Lease& lease, const Position* position_before);

  // Nobody will claim it.  REQUIRES: its holder has exited.
  void poison(Lease& lease);

  // Every lease, oldest first.
  [[nodiscard]] const std::map<std::uint64_t, Lease>& all() const noexcept {
    return leases_;
  }

 private:
  [[nodiscard]] Unit& unit(const Lease& lease) const noexcept {
    return region_.unit(lease.cell);
  }
  [[nodiscard]] bool set_position_before(
      const Lease& lease, const Position& position) const noexcept;
  void set_slot(Lease& lease, ArenaSlot* slot) const noexcept;
  void set_word(const Lease& lease, UnitState state,
                std::uint32_t holder) const noexcept;
  void forget(std::uint64_t id);

  const Region region_;
  const int arena_fd_;
  std::uint64_t next_id_ = 1;
  std::uint32_t withdrawn_ = 0;
  std::vector<std::uint32_t> unused_;  // cells
  std::map<std::uint64_t, Lease> leases_;
};

}  // namespace gristmill
