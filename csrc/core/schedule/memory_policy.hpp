// Decides which units get a slot when memory is short.
//
// A unit is published with a slot as large as the units before it needed.  A
// holder that needs more waits until there is room.  If the unit due cannot be
// computed otherwise, the policy evicts units that no worker computes, then
// units whose holders wait for memory, in both cases the youngest first.
// Evicted units are published and computed again.
//
// Thread safety: external synchronization (the scheduler's mutex).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/memory/arena.hpp"
#include "core/schedule/lease.hpp"
#include "core/schedule/next_result.hpp"
#include "core/schedule/order.hpp"

namespace gristmill {

class MemoryPolicy {
 public:
  // REQUIRES: the arguments outlive this object.
  MemoryPolicy(Region region, Arena& arena, LeaseTable& leases, Order& order,
               std::uint32_t workers)
      : region_(region),
        arena_(arena),
        leases_(leases),
        order_(order),
        workers_(workers) {}

  // Takes a slot for the next unit to be published from the arena.  Returns
  // nullptr if it would exceed the limit.
  [[nodiscard]] ArenaSlot* take_slot_for_next();

  // Returns a new slot with a copy of the first `bytes` bytes of `slot`, or
  // nullptr if memory is missing.
  [[nodiscard]] ArenaSlot* copy_slot(const ArenaSlot* slot,
                                     std::uint64_t bytes);

  // Records the number of bytes that a unit has used.
  void record_used(std::uint64_t bytes);

  // Gives larger slots to the holders that wait for one.  Returns false if some
  // of them still wait.
  bool grant_all();
  // Returns true after a holder got no slot, until grant_all() returns true.
  [[nodiscard]] bool has_waiting_holder() const noexcept {
    return has_waiting_holder_;
  }

  // Evicts the youngest unit that no worker holds or, if all are held, the
  // youngest whose holder waits for memory; never `keep`.  Returns false if no
  // unit can be evicted.
  bool evict(std::uint64_t keep);

  // Finds the memory that the unit due needs, if it waits for memory.  Returns
  // the shortage if there is not enough.
  [[nodiscard]] std::optional<Shortage> find_memory_for(const Lease& due);

  // Makes units of the stream claimable again that workers handed back because
  // memory was missing, from its pending unit `first` on.  That unit begins at
  // `position_before` if that is not null; the others begin at the end of the
  // unit before.
  void retry_refused(const Stream& stream, std::size_t first,
                     const Position* position_before);

  // Returns the shortage for a unit of `needed_bytes`; 0: for the next unit.
  [[nodiscard]] Shortage shortage(std::uint64_t needed_bytes = 0) const;

 private:
  [[nodiscard]] std::uint64_t find_evictable(std::uint64_t keep,
                                             bool waiting) const;
  bool grant(Lease& lease);
  [[nodiscard]] Lease* find_blocking_unit(const Lease& due);

  const Region region_;
  Arena& arena_;
  LeaseTable& leases_;
  Order& order_;
  const std::uint32_t workers_;
  std::uint64_t largest_unit_bytes_ = 0;  // most bytes used by a unit so far
  bool has_waiting_holder_ = false;       // a holder waits for memory
};

}  // namespace gristmill
