// The layout of the part of shared memory that both sides read: sequence
// numbers to sleep on, one WorkerCell for each worker, one Unit for each piece
// of work in flight, and two positions for each Unit.  Slots follow.
//
// Every shared word has one writer at a time.  The only contested store is the
// claim of a unit, a single compare-and-swap that also stores the holder.  The
// unit's word orders the plain fields: they are written before a release store
// to it and read after an acquire load of it.  There are no locks, so a process
// may die at any instruction.
//
// Other programs, such as `gristmill top`, may read all of this, but must not
// write. pkg/gristmill/_observe/shared_words.py defines the offsets that they
// use.  They do not synchronize, so they may read torn values.  If you move a
// field, increase kLayout both here and there.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/memory/counts.hpp"
#include "core/memory/unit_word.hpp"

namespace gristmill {

// A position in a stream, or a request: integers that are opaque to the core.
using Position = std::vector<std::int64_t>;

static_assert(std::endian::native == std::endian::little);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// The version of this layout.
inline constexpr std::uint64_t kLayout = 1;
// The first word of the mapping in every version, stored when the head is
// complete: the layout and "grstml", which no other file has there.
inline constexpr std::uint64_t kLayoutWord = 0x6c6d'7473'7267'0000 | kLayout;

// If the position capacity of a run is at most this, all positions have pages
// from the start.  Otherwise each position gets pages when it is used.
inline constexpr std::uint32_t kSmallPosition = 8;
// Maximum position capacity of a run, in integers.
inline constexpr std::uint32_t kMaxPositionCapacity = 1U << 16;
// Maximum number of workers: the unit's word has 12 bits for holder + 1.
inline constexpr std::uint32_t kMaxWorkers = 4094;
// Maximum bytes of a worker's startup error.
inline constexpr std::uint32_t kErrorBytes = 7936;

// Values of waiting_for: any unit wakes the consumer, or no unit does.
inline constexpr std::uint64_t kAnyUnit = ~std::uint64_t{0};
inline constexpr std::uint64_t kNoUnit = 0;

struct Control {
  std::atomic<std::uint64_t> layout;  // kLayoutWord, stored last
  // Constant after the first worker starts.
  std::uint32_t owner;  // pid of the parent
  UnitKind kind;        // of all units
  std::uint64_t memory_limit;
  std::uint32_t workers;
  std::uint32_t units;
  std::uint32_t streams;
  std::uint32_t position_capacity;  // maximum integers in a position

  // Incremented by the parent to wake workers, which sleep on it while they
  // have no unit.
  alignas(64) std::atomic<std::uint32_t> work_sequence;
  // Incremented by workers after each commit or offered part, and by the parent
  // after other events.  The consumer sleeps on it.
  alignas(64) std::atomic<std::uint32_t> done_sequence;
  // The id of the unit that the sleeping consumer waits for, or kAnyUnit.
  // kNoUnit while it is awake or waits only for a worker's wait status.
  // Written by the parent.
  alignas(64) std::atomic<std::uint64_t> waiting_for;
  // Outputs that the consumer has taken.  Written by the parent.
  alignas(64) std::atomic<std::uint64_t> delivered;
};

// If the outputs of a unit exceed this many bytes, the worker splits the unit.
// This is an eighth of the memory for each worker or stream, whichever are
// more.  Each stream may have one open unit while each worker computes others.
[[nodiscard]] inline std::uint64_t max_unit_bytes(
    const Control& control) noexcept {
  return control.memory_limit / std::max(control.workers, control.streams) / 8;
}

struct alignas(64) WorkerCell {
  // Written by the parent.
  // generation that may access units, 0 for none
  std::atomic<std::uint32_t> admitted;
  // 1 if the worker must leave, else 0
  std::atomic<std::uint32_t> stop;
  std::atomic<std::uint32_t> pid;  // process of that generation, 0 for none
  // Written by the worker, on its own cache line.  The parent resets `asleep`
  // and `current_record` after the worker's exit.
  // 1 while the worker waits for work_sequence to change, else 0
  alignas(64) std::atomic<std::uint32_t> asleep;
  std::atomic<std::uint32_t> started;  // generation that has requested work
  std::atomic<std::int64_t> current_record;  // -1 for none
  std::atomic<std::uint32_t> error_len;      // length of the text below
  char error[kErrorBytes];                   // why the worker could not start
  alignas(64) Counts counts;
};

// The work of a unit.  A range is [first, first + count); the other kinds do
// not use these two.  `prev` is 0 in a range.
struct Task {
  std::uint32_t stream = 0;
  UnitKind kind = UnitKind::kRange;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::uint64_t prev = 0;  // id of the stream's previous unit, 0 for none
};

struct alignas(64) Unit {
  std::atomic<std::uint64_t> word;
  // Written by the parent.
  Task task;
  std::uint64_t offset;           // slot offset from the start of the mapping
  std::uint64_t capacity;         // slot capacity, in bytes
  std::uint32_t position_before;  // integers in the initial position
  // Written by the holder.
  alignas(64) UnitStatus status;
  std::uint32_t outputs;
  std::uint64_t bytes;            // bytes used, from the start of the slot
  std::uint64_t requested_bytes;  // with kNeed: the requested capacity
  std::uint64_t populated;  // bytes of the slot that have pages; the parent
                            // sets the initial value
  std::uint32_t position_after;  // integers in the final position
  std::int64_t duration_ns;      // time from claim to commit
};

// Locates the parts of the mapping.
class Region {
 public:
  Region() = default;
  explicit Region(std::byte* base) : base_(base) {}

  // Returns the number of bytes before the first slot.
  [[nodiscard]] static std::uint64_t head_bytes(
      std::uint32_t workers, std::uint32_t units,
      std::uint32_t position_capacity) noexcept;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] Control& control() const noexcept {
    return *reinterpret_cast<Control*>(base_);
  }
  // REQUIRES: worker < control().workers.
  [[nodiscard]] WorkerCell& cell(std::uint32_t worker) const noexcept {
    return *(reinterpret_cast<WorkerCell*>(base_ + sizeof(Control)) + worker);
  }
  // REQUIRES: index < control().units.
  [[nodiscard]] Unit& unit(std::uint32_t index) const noexcept {
    return *(reinterpret_cast<Unit*>(base_ + sizeof(Control) +
                                     control().workers * sizeof(WorkerCell)) +
             index);
  }
  // Return the positions before and after a unit.  A unit starts from the
  // first.  The second follows its last output, or the consumed records if it
  // has no outputs.
  // REQUIRES: index < control().units.
  [[nodiscard]] std::int64_t* position_before(
      std::uint32_t index) const noexcept {
    return position(2 * std::uint64_t{index});
  }
  [[nodiscard]] std::int64_t* position_after(
      std::uint32_t index) const noexcept {
    return position(2 * std::uint64_t{index} + 1);
  }

  // Allocates the pages of a range before it is written.  Without this, a write
  // to a missing page raises SIGBUS when memory is exhausted.  `fd` is the
  // mapped file, or -1; without it this fails on kernels before Linux 5.14.
  // Returns true iff the whole range has pages.
  [[nodiscard]] bool populate(const void* address, std::uint64_t bytes,
                              int fd) const noexcept;

  // Copies a position to its place in the mapping, and allocates pages for it
  // if necessary.  Returns false if there is no memory.
  // REQUIRES: it has 1 to control().position_capacity integers.
  [[nodiscard]] bool store(const Position& position, std::int64_t* to,
                           int fd) const noexcept;

 private:
  [[nodiscard]] std::int64_t* position(std::uint64_t index) const noexcept;

  std::byte* base_ = nullptr;
};

}  // namespace gristmill
