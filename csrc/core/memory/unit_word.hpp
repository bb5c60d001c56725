// The word of a Unit, which contains its state, and the enums that describe
// units.
#pragma once

#include <cstdint>

namespace gristmill {

enum class UnitState : std::uint32_t {
  kEmpty,      // the parent's: empty, withdrawn or poisoned
  kFree,       // waits for a claim by the named worker, or by any
  kLeased,     // belongs to the holder
  kNeed,       // the holder waits for a larger slot
  kGranted,    // the holder has the larger slot
  kCommitted,  // waits for the parent to take it
  kPart,  // its first outputs are offered to the parent; the holder computes
          // the others, and does not touch the slot before the answer
};

// The result that the holder stores when it commits a unit.
enum class UnitStatus : std::uint32_t {
  kOk,
  kEnd,       // these are the last outputs of the stream
  kError,     // the last output is an error; a range continues after it
  kMoved,     // a range: the stream continues before or after the unit's end
  kNoMemory,  // not computed: no memory for the pages of the slot
};

// Determines which workers may compute a unit, and in what order.
enum class UnitKind : std::uint32_t {
  kRange,       // records [first, first + count), by any worker
  kSequential,  // the next outputs of the stream, by its owner, in order
  kRequest,     // the request in position_before, by the stream's owner
};

// A unit's word: id 40 | attempt 8 | state 4 | holder 12 bits.  The attempt is
// Lease::attempts.  The holder is worker + 1.  In a free unit it is the only
// worker that may claim the unit, or 0 for any.  An empty unit has holder 0.
struct UnitWord {
  std::uint64_t bits = 0;

  static UnitWord make(std::uint64_t id, std::uint32_t attempt, UnitState state,
                       std::uint32_t holder) noexcept {
    return {id << 24 | std::uint64_t{attempt & 0xffU} << 16 |
            std::uint64_t{static_cast<std::uint32_t>(state)} << 12 |
            (holder & 0xfffU)};
  }
  [[nodiscard]] std::uint64_t id() const noexcept { return bits >> 24; }
  [[nodiscard]] std::uint32_t attempt() const noexcept {
    return static_cast<std::uint32_t>(bits >> 16 & 0xff);
  }
  [[nodiscard]] UnitState state() const noexcept {
    return static_cast<UnitState>(bits >> 12 & 0xf);
  }
  [[nodiscard]] std::uint32_t holder() const noexcept {
    return static_cast<std::uint32_t>(bits & 0xfff);
  }
  [[nodiscard]] UnitWord with(UnitState state,
                              std::uint32_t holder) const noexcept {
    return make(id(), attempt(), state, holder);
  }
};

}  // namespace gristmill
