// A worker's end of the shared memory: claim a unit, fill its slot, commit.
//
// The worker writes nothing but its own Cell and the unit that it holds.  It
// may be killed between any two instructions.
//
// Thread safety: one thread at a time: the worker's main thread, or, while that
// computes, another one that commits parts; at_address() is read by the parent
// after the worker's report.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/status.hpp"
#include "core/memory/control.hpp"

namespace gristmill {

// A claimed unit, as its holder sees it.
struct Work : Task {
  std::uint64_t id = 0;
  std::uint32_t attempt = 0;
  // This process computed the stream's unit before this one: its live state is
  // where the unit begins, and position_before need not be looked at.
  bool proceed = false;
  Position position_before = {};
  std::byte* slot = nullptr;
  std::uint64_t capacity = 0;
};

class WorkerEnd {
 public:
  // Maps the arena.  Both descriptors stay the caller's; the arena's may be
  // closed afterwards.
  static Result<std::unique_ptr<WorkerEnd>> open(int arena_fd,
                                                 int slot_request_fd,
                                                 std::uint32_t worker,
                                                 std::uint32_t generation);
  // Uses a mapping that outlives this object: both ends in one process.
  WorkerEnd(Region region, int slot_request_fd, std::uint32_t worker,
            std::uint32_t generation);
  ~WorkerEnd();
  WorkerEnd(const WorkerEnd&) = delete;
  WorkerEnd& operator=(const WorkerEnd&) = delete;

  // Waits to be admitted, then for a unit, and claims the oldest it may take.
  // The slot is safe to write: it has pages.  Nothing when the parent says
  // stop.
  // REQUIRES: the unit claimed before is committed or lost.
  [[nodiscard]] std::optional<Work> claim();

  // Waits for a slot of at least `bytes` and puts it into `work`; the content
  // of the old one is gone.  False: the unit is lost (withdrawn, stop, or no
  // memory), the worker goes on with claim().
  // REQUIRES: `work` is claimed and not committed.
  [[nodiscard]] bool need(Work& work, std::uint64_t bytes);

  // Returns true if the consumer sleeps until the unit has an output.
  [[nodiscard]] bool is_awaited(const Work& work) const noexcept;

  // Offers the unit's first outputs to the parent; the slot is the parent's
  // until resume().  `position_after` is the stream's position after them, a
  // record of the unit.  Another thread may do this while the worker's
  // computes.  To be done while the unit is awaited: what the parent takes
  // needs memory until it is delivered.  False if they cannot be offered.
  // REQUIRES: `work` is a range that is claimed, and neither committed nor
  // offered in part since resume() has returned true; as commit().
  [[nodiscard]] bool offer_part(const Work& work, std::uint32_t outputs,
                                std::uint64_t bytes,
                                const Position& position_after);

  // Returns true if the parent has answered: resume() does not wait then.
  [[nodiscard]] bool can_resume() const noexcept;

  // Waits for the answer; `work` begins after the part if it was taken, and as
  // before if not.  False: the unit is lost, see need().
  [[nodiscard]] bool resume(Work& work);

  // Hands the unit to the parent; back, to be computed again, if there is no
  // memory for `position_after`.  That is the stream's position after the last
  // output, or after what a unit without outputs has consumed.
  // REQUIRES: bytes <= work.capacity, 1 to position_capacity() integers.
  void commit(const Work& work, UnitStatus status, std::uint32_t outputs,
              std::uint64_t bytes, const Position& position_after);

  // Says why this worker could not start; the parent raises it after the
  // worker's report.  Truncated to kErrorBytes.
  void set_startup_error(std::string_view text) noexcept;

  // Lets others read a text, in the place of the one before; cut to
  // kTextWords * 8 bytes.
  void tell(std::string_view text) noexcept;

  // Where the record in work is stored, before it is processed.
  [[nodiscard]] std::atomic<std::int64_t>* at_address() noexcept {
    return &cell_->at;
  }
  // How many workers there are, this one among them.
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
  [[nodiscard]] std::pair<Unit*, UnitWord> find_free() const;
  [[nodiscard]] std::optional<Work> try_claim();
  [[nodiscard]] bool ready(const Work& work);
  void ask_for_slot() const noexcept;
  [[nodiscard]] bool wait_for_slot(Work& work);
  [[nodiscard]] bool write_result(const Work& work, UnitStatus status,
                                  std::uint32_t outputs, std::uint64_t bytes,
                                  const Position& position_after);
  void refuse(const Work& work);
  void announce(const Work& work, UnitWord word) noexcept;
  void hand_over(const Work& work) noexcept;
  void count_busy() noexcept;
  void count_outputs() noexcept;
  [[nodiscard]] Work held_work() const;
  [[nodiscard]] std::uint32_t held_index() const noexcept {
    return static_cast<std::uint32_t>(unit_ - &region_.unit(0));
  }

  const Region region_;
  const int slot_request_fd_;
  const std::uint32_t worker_;
  const std::uint32_t generation_;
  Cell* const cell_;
  std::uint64_t mapped_bytes_ = 0;   // 0: the mapping is not ours
  int arena_fd_ = -1;                // our copy, to populate on old kernels
  Unit* unit_ = nullptr;             // of the unit held
  UnitWord word_;                    // its word while we compute
  UnitWord asked_;                   // its word as we wrote it, if we wait
  std::vector<std::uint64_t> done_;  // per stream: the last unit done here
  // Owned units handed back for want of memory.  Where the unit behind one of
  // them begins is not known before that one is computed.
  std::unordered_set<std::uint64_t> refused_;
};

}  // namespace gristmill
