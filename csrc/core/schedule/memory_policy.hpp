// Which units get a slot, where memory is short.
//
// A unit is published with a slot as large as those before it needed.  A holder
// that needs more waits until there is room.  When the unit due cannot be
// computed otherwise, the policy evicts units that no worker computes, then
// those whose holders wait for memory, the youngest first.  They are published
// and computed again.
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
  // REQUIRES: what it is given outlives it.
  MemoryPolicy(Region region, Arena& arena, LeaseTable& leases, Order& order,
               std::uint32_t workers)
      : region_(region),
        arena_(arena),
        leases_(leases),
        order_(order),
        workers_(workers) {}

  // A slot for a unit to be published, or nullptr.
  [[nodiscard]] ArenaSlot* slot_for_next();

  // A slot with a copy of the first bytes of another, or nullptr.
  [[nodiscard]] ArenaSlot* copy_of(const ArenaSlot* slot, std::uint64_t bytes);

  // A unit has used so many bytes.
  void used(std::uint64_t bytes);

  // Gives larger slots to the holders that wait for one.  False if some go on
  // waiting.
  bool grant_all();
  [[nodiscard]] bool some_wait() const noexcept { return some_wait_; }

  // Takes back the youngest unit, but not `keep`, that no worker has or, if
  // there is none, whose holder waits for memory.  False if there is none.
  bool evict(std::uint64_t keep);

  // Finds the memory without which the unit due cannot be computed; returns
  // what is missing if there is none.
  [[nodiscard]] std::optional<Shortage> find_memory_for(const Lease& due);

  // Frees those units of the stream, from its pending unit `at` on, that
  // workers handed back for want of memory.  The first begins at `begins`, if
  // that is given; the others where the one before them ends.
  void retry_refused(const Stream& stream, std::size_t at,
                     const Position* begins);

  // What is missing for a unit of `need` bytes; 0: for the next one.
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
  std::uint64_t largest_ = 0;  // bytes used by a unit so far
  bool some_wait_ = false;     // a holder waits for memory
};

}  // namespace gristmill
