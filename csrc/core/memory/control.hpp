// The part of the shared memory that both ends read: sequence numbers to sleep
// on, one Cell for each worker, one Unit for each piece of work in flight and
// two positions for each Unit.  Slots follow behind.
//
// Every shared word has one writer at a time; the only contested store is the
// claim of a unit, one compare-and-swap that also names the holder.  Plain
// fields are ordered by the unit's word: they are written before a release
// store to it and read after an acquire load of it.  No lock lives here, so a
// process may die at any instruction.
//
// Programs of others, such as `gristmill top`, may read all this and write
// nothing: pkg/gristmill/_observe/shared_words.py says where they find it.
// Nobody waits for them, so what they read may be torn.  Whoever moves a field
// raises kLayout, there too.
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

// A position in a stream, or a request: integers whose meaning is others'.
using Position = std::vector<std::int64_t>;

static_assert(std::endian::native == std::endian::little);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// Which of the layouts this is.
inline constexpr std::uint64_t kLayout = 1;
// What the mapping begins with once its head is set up, in every version: the
// layout and "grstml", which no other file has there.
inline constexpr std::uint64_t kLayoutWord = 0x6c6d'7473'7267'0000 | kLayout;

// Positions of a run whose capacity is at most this have pages from the start;
// those of others are given pages as far as they are used.
inline constexpr std::uint32_t kSmallPosition = 8;
// Integers that a run's positions may have room for.
inline constexpr std::uint32_t kMaxPositionCapacity = 1U << 16;
// Workers, at most: the unit's word has 12 bits for holder + 1.
inline constexpr std::uint32_t kMaxWorkers = 4094;
inline constexpr std::uint32_t kErrorBytes = 7936;

// The Control's waiting_for of a consumer that takes whatever comes first.
inline constexpr std::uint64_t kAnyUnit = ~std::uint64_t{0};

struct Control {
  std::atomic<std::uint64_t> layout;  // kLayoutWord, stored last
  // Fixed before any worker exists.
  std::uint32_t owner;  // the parent's pid
  UnitKind kind;        // of all units
  std::uint64_t memory_limit;
  std::uint32_t workers;
  std::uint32_t units;
  std::uint32_t streams;
  std::uint32_t position_capacity;  // integers in a position, at most

  alignas(64) std::atomic<std::uint32_t> work_sequence;
  alignas(64) std::atomic<std::uint32_t> done_sequence;
  // The id of the unit that the consumer sleeps for, or kAnyUnit; 0 while it is
  // awake.
  alignas(64) std::atomic<std::uint64_t> waiting_for;
  // Outputs that the consumer has taken; the parent's.
  alignas(64) std::atomic<std::uint64_t> delivered;
};

// The bytes of outputs above which a worker cuts a unit of several outputs. One
// unit of each stream may be open, and each worker computes others.
[[nodiscard]] inline std::uint64_t max_unit_bytes(
    const Control& control) noexcept {
  return control.memory_limit / std::max(control.workers, control.streams) / 8;
}

struct alignas(64) Cell {
  // The parent's.
  std::atomic<std::uint32_t> admitted;  // generation that may touch units
  std::atomic<std::uint32_t> stop;
  std::atomic<std::uint32_t> pid;  // of that generation, 0 for none
  // The worker's, on a line of its own.
  alignas(64) std::atomic<std::uint32_t> asleep;
  std::atomic<std::uint32_t> started;    // generation that asked for work
  std::atomic<std::int64_t> at;          // record in work, -1 for none
  std::atomic<std::uint32_t> error_len;  // of the text below
  char error[kErrorBytes];               // why the worker could not start
  alignas(64) Counts counts;
};

// What is to be computed.
struct Task {
  std::uint32_t stream = 0;
  UnitKind kind = UnitKind::kRange;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::uint64_t prev = 0;  // id of the stream's unit before this, 0 for none
};

struct alignas(64) Unit {
  std::atomic<std::uint64_t> word;
  // Written by the parent.
  Task task;
  std::uint64_t offset;    // of the slot, from the start of the mapping
  std::uint64_t capacity;  // of the slot
  std::uint32_t
      position_before;  // integers in the position that it starts from
  // Written by the holder.
  alignas(64) UnitStatus status;
  std::uint32_t outputs;
  std::uint64_t bytes;      // used, from the start of the slot
  std::uint64_t needed;     // with kNeed: the capacity asked for
  std::uint64_t populated;  // bytes of the slot that have pages; the parent
                            // writes it first
  std::uint32_t position_after;  // integers in the position after it
  std::int64_t took_ns;          // from its claim to its commit
};

// Where things lie in the mapping.
class Region {
 public:
  Region() = default;
  explicit Region(std::byte* base) : base_(base) {}

  // Bytes before the first slot.
  [[nodiscard]] static std::uint64_t head_bytes(
      std::uint32_t workers, std::uint32_t units,
      std::uint32_t position_capacity) noexcept;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] Control& control() const noexcept {
    return *reinterpret_cast<Control*>(base_);
  }
  // REQUIRES: worker < control().workers.
  [[nodiscard]] Cell& cell(std::uint32_t worker) const noexcept {
    return *(reinterpret_cast<Cell*>(base_ + sizeof(Control)) + worker);
  }
  // REQUIRES: index < control().units.
  [[nodiscard]] Unit& unit(std::uint32_t index) const noexcept {
    return *(reinterpret_cast<Unit*>(base_ + sizeof(Control) +
                                     control().workers * sizeof(Cell)) +
             index);
  }
  // Where the position lies that a unit starts from, and that after its last
  // output, or after what a unit without outputs has consumed.
  // REQUIRES: index < control().units.
  [[nodiscard]] std::int64_t* position_before(
      std::uint32_t index) const noexcept {
    return position(2 * std::uint64_t{index});
  }
  [[nodiscard]] std::int64_t* position_after(
      std::uint32_t index) const noexcept {
    return position(2 * std::uint64_t{index} + 1);
  }

  // Gives a range pages before it is written: where there is no memory, a write
  // to a page that is not there raises SIGBUS.  `fd` is the file that is
  // mapped, or -1; without it kernels before Linux 5.14 refuse.  Returns true
  // iff the whole range has pages now.
  [[nodiscard]] bool populate(const void* place, std::uint64_t bytes,
                              int fd) const noexcept;

  // Copies a position to its place in the mapping, which gets pages if need be;
  // false if there are none.
  // REQUIRES: it has 1 to control().position_capacity integers.
  [[nodiscard]] bool store(const Position& position, std::int64_t* to,
                           int fd) const noexcept;

 private:
  [[nodiscard]] std::int64_t* position(std::uint64_t index) const noexcept;

  std::byte* base_ = nullptr;
};

}  // namespace gristmill
