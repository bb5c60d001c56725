// A worker's end of the shared memory: claim a unit, fill its slot, commit.
//
// The worker writes only its own WorkerCell and the unit that it holds.  It may
// be killed between any two instructions.
//
// Thread safety: one thread at a time, which is the worker's main thread or,
// while that computes, another one that offers parts.  The parent reads the
// record at current_record_address() at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/base/status.hpp"
#include "core/memory/control.hpp"

namespace gristmill {

// A claimed unit from the point of view of its holder.
struct Work : Task {
  std::uint64_t id = 0;
  std::uint32_t attempt = 0;
  // True if this process computed the stream's unit before this one.  Its state
  // of the stream is then at the start of this unit, and position_before is not
  // needed.
  bool continues_stream = false;
  Position position_before = {};
  std::byte* slot = nullptr;
  std::uint64_t capacity = 0;
};

class WorkerEnd {
 public:
  // Maps the arena.  The parent reads the eventfd `notify_fd`.  The caller
  // keeps ownership of both descriptors, and may close `arena_fd` afterwards.
  static Result<std::unique_ptr<WorkerEnd>> open(int arena_fd, int notify_fd,
                                                 std::uint32_t worker,
                                                 std::uint32_t generation);
  // Uses a mapping that outlives this object, for both ends in one process.
  WorkerEnd(Region region, int notify_fd, std::uint32_t worker,
            std::uint32_t generation);
  ~WorkerEnd();
  WorkerEnd(const WorkerEnd&) = delete;
  WorkerEnd& operator=(const WorkerEnd&) = delete;

  // Waits to be admitted, then for a unit, and claims the oldest one that it
  // may take.  The slot has pages, so it is safe to write.  Returns nullopt if
  // the parent requests a stop.
  // REQUIRES: the unit claimed before is committed or lost.
  [[nodiscard]] std::optional<Work> claim();

  // Requests a slot of at least `bytes`, waits for it and stores it in `work`;
  // the contents of the old slot are gone.  Returns false if the unit is lost
  // (withdrawn, stop, or no memory); the worker then continues with claim().
  // REQUIRES: `work` is claimed and not committed.
  [[nodiscard]] bool request_larger_slot(Work& work, std::uint64_t bytes);

  // Returns true if the consumer sleeps until this particular unit has an
  // output; false if any unit would wake it.
  [[nodiscard]] bool is_awaited(const Work& work) const noexcept;

  // Offers the unit's first outputs to the parent, which owns the slot until
  // resume().  `position_after` has one integer: the record after the part, in
  // [work.first + 1, work.first + work.count].  Returns false, and offers
  // nothing, if there is no memory for that position.  Call this only while the
  // unit is awaited, since the outputs that the parent takes need memory until
  // they are delivered.  Another thread may call this while the worker's main
  // thread computes.
  // REQUIRES: `work` is a claimed range and not committed; outputs >= 1; bytes
  // <= work.capacity; no offer before this one is without an answer.
  [[nodiscard]] bool offer_part(const Work& work, std::uint32_t outputs,
                                std::uint64_t bytes,
                                const Position& position_after);

  // Returns true if the parent has answered offer_part().  resume() then does
  // not wait.
  [[nodiscard]] bool can_resume() const noexcept;

  // Waits for the parent's answer to offer_part().  If the part was taken,
  // `work` begins after it; else `work` is unchanged, and its outputs are still
  // in the slot.  Returns false if the unit is lost, see request_larger_slot().
  [[nodiscard]] bool resume(Work& work);

  // Hands the computed unit to the parent.  `position_after` is the stream's
  // position after the last output, or after the records that a unit without
  // outputs has consumed.  If there is no memory for that position, hands the
  // unit back to be computed again.
  // REQUIRES: bytes <= work.capacity, 1 to position_capacity() integers.
  void commit(const Work& work, UnitStatus status, std::uint32_t outputs,
              std::uint64_t bytes, const Position& position_after);

  // Stores the reason why this worker could not start.  The parent raises it
  // after the worker's exit was reported.  Truncated to kErrorBytes.
  void set_startup_error(std::string_view text) noexcept;

  // Publishes a text for observers, which replaces the previous one (Counts).
  // Truncated to kTextWords * 8 bytes.
  void publish_status(std::string_view text) noexcept;

  // The address to which each record is stored before it is processed.
  [[nodiscard]] std::atomic<std::int64_t>* current_record_address() noexcept {
    return &cell_->current_record;
  }
  // The number of workers, including this one.
  [[nodiscard]] std::uint32_t workers() const noexcept {
    return region_.control().workers;
  }
  [[nodiscard]] std::uint64_t max_unit_bytes() const noexcept {
    return gristmill::max_unit_bytes(region_.control());
  }
  [[nodiscard]] std::uint32_t position_capacity() const noexcept {
    return region_.control().position_capacity;
  }

 private:
  // A unit that was free, and its word at that time.
  struct FreeUnit {
    Unit* unit = nullptr;  // null for none
    UnitWord word;
  };
  [[nodiscard]] FreeUnit find_oldest_free() const;
  [[nodiscard]] std::optional<Work> try_claim();
  [[nodiscard]] bool populate_slot(const Work& work);
  void notify_parent() const noexcept;
  [[nodiscard]] bool wait_for_answer(Work& work);
  [[nodiscard]] bool write_result(const Work& work, UnitStatus status,
                                  std::uint32_t outputs, std::uint64_t bytes,
                                  const Position& position_after);
  void refuse(const Work& work);
  void publish_word(const Work& work, UnitWord word) noexcept;
  void hand_over(const Work& work) noexcept;
  void count_busy() noexcept;
  void count_outputs() noexcept;
  [[nodiscard]] Work held_work() const;
  [[nodiscard]] std::uint32_t held_index() const noexcept {
    return static_cast<std::uint32_t>(unit_ - &region_.unit(0));
  }

  const Region region_;
  const int notify_fd_;
  const std::uint32_t worker_;
  const std::uint32_t generation_;
  WorkerCell* const cell_;
  std::uint64_t mapped_bytes_ = 0;  // 0 if the mapping outlives this object
  int arena_fd_ = -1;               // a copy, to populate on old kernels
  Unit* unit_ = nullptr;            // the held unit; null for none
  UnitWord word_;                   // its word while this worker computes
  // Its word from request_larger_slot() or offer_part() until the parent
  // answers.
  UnitWord pending_word_;
  // By stream: the id of the last unit that this process computed, if its
  // state of the stream is still at that unit's end; else 0.
  std::vector<std::uint64_t> last_computed_;
  // Owned units that were handed back because memory was missing.  The start of
  // the unit after one of them is not known until that one is computed.
  std::unordered_set<std::uint64_t> refused_;
};

}  // namespace gristmill
