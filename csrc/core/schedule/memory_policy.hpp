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

  // Returns a slot for a unit to be published, or nullptr.
  [[nodiscard]] ArenaSlot* slot_for_next();

  // Returns a slot with a copy of the first bytes of another one, or nullptr.
  [[nodiscard]] ArenaSlot* copy_of(const ArenaSlot* slot, std::uint64_t bytes);

  // Records the number of bytes that a unit has used.
  void record_used(std::uint64_t bytes);

  // Gives larger slots to the holders that wait for one.  Returns false if some
  // of them still wait.
  bool grant_all();
  [[nodiscard]] bool some_wait() const noexcept { return some_wait_; }

  // Evicts the youngest unit that no worker holds or, if all are held, the
  // youngest whose holder waits for memory; never `keep`.  Returns false if no
  // unit can be evicted.
  bool evict(std::uint64_t keep);

  // Finds the memory that the unit due needs, if it waits for memory.  Returns
  // the shortage if there is not enough.
  [[nodiscard]] std::optional<Shortage> find_memory_for(const Lease& due);

  // Frees the units of the stream, from its pending unit `at` on, that workers
  // handed back because memory was missing.  The first one begins at `begins`
  // if that is not null; the others begin at the end of the unit before.
  void retry_refused(const Stream& stream, std::size_t at,
                     const Position* begins);

  // Returns the shortage for a unit of `need` bytes; 0: for the next unit.
  [[nodiscard]] Shortage shortage(std::uint64_t need = 0) const;

 private:
  [[nodiscard]] std::uint64_t youngest(std::uint64_t keep, bool waits) const;
  bool grant(Lease& lease);
  [[nodiscard]] Lease* blocking(const Lease& due);

  const Region region_;
  Arena& arena_;
  LeaseTable& leases_;
  Order& order_;
  const std::uint32_t workers_;
  std::uint64_t largest_ = 0;  // most bytes used by a unit so far
  bool some_wait_ = false;     // a holder waits for memory
};

}  // namespace gristmill
