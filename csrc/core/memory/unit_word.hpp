// The word of a Unit, which says what becomes of it, and what else is said of
// units by a number.
#pragma once

#include <cstdint>

namespace gristmill {

enum class UnitState : std::uint32_t {
  kEmpty,      // the parent's: nothing here, or withdrawn
  kFree,       // to be claimed, by the named worker or by anybody
  kLeased,     // the holder's alone
  kNeed,       // the holder waits for a larger slot
  kGranted,    // the holder has it
  kCommitted,  // the parent's to take
  kPart,  // its first outputs are offered to the parent; the holder computes
          // the others, and does not touch the slot before the answer
};

// What the holder says about a unit when it commits it.
enum class UnitStatus : std::uint32_t {
  kOk,
  kEnd,       // the stream has no outputs after these
  kError,     // the last output is an error; a range goes on behind it
  kMoved,     // a range: the stream continues before or after the unit's end
  kNoMemory,  // not computed: the slot could not be given pages
};

// Who may compute a unit, and in what order.
enum class UnitKind : std::uint32_t {
  kRange,       // records [first, first + count), by anybody
  kSequential,  // what comes next in the stream, by its owner, in order
  kRequest,     // what its position_before asks for, by the stream's owner
};

// A unit's word: id 40 | attempt 8 | state 4 | holder 12.  The holder is
// worker + 1; in a free unit it names who may claim it, 0 being anybody.
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
