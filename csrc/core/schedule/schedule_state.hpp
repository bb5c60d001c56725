// The state of a Scheduler: published, delivered and poisoned units.
//
// A unit is a piece of work.  Its Lease is the parent's record of it, and its
// holder is the worker that claimed it.  A holder may offer a part: the first
// outputs, so that they are delivered while it computes the others.  A unit
// whose holders exited too often is poisoned and never computed again.  A
// withdrawn unit is canceled.
//
// No function here waits or calls back.  The progress of workers is read from
// the shared memory; on_exited() and similar functions report other events.
//
// Thread safety: external synchronization (the scheduler's mutex).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/memory/arena.hpp"
#include "core/memory/slot.hpp"
#include "core/schedule/lease.hpp"
#include "core/schedule/memory_policy.hpp"
#include "core/schedule/next_result.hpp"
#include "core/schedule/order.hpp"
#include "core/schedule/pace.hpp"
#include "core/schedule/worker_table.hpp"

namespace gristmill {

// The configuration of a Scheduler.
struct SchedulerConfig {
  std::uint32_t workers = 1;
  // fill() stops at workers * (buffer + 2) pending units.
  std::uint32_t buffer = 1;
  UnitKind kind = UnitKind::kRange;
  std::int64_t unit_records = 1;      // ranges: records in a unit
  std::uint32_t max_restarts = 1;     // of one unit
  std::uint64_t memory_limit = 0;     // bytes, 0: 80 % of the memory
  std::vector<std::int64_t> lengths;  // records of each stream, -1 unknown
  std::uint32_t position_capacity = kSmallPosition;  // integers in a position
  RunPosition start;
  bool in_order = true;      // else outputs are delivered as they are ready
  bool exits_final = false;  // workers that exit are not replaced
  double slow_s = -1;        // see Pace; negative: slow units are not reported
};

class ScheduleState {
 public:
  // The unit whose commit the consumer must wait for; kAnyUnit if the output
  // due lacks memory, which the commit of any unit may free.
  struct AwaitedUnit {
    std::uint64_t id = 0;
  };

  // The region is in the arena and is initialized already.
  // REQUIRES: `config` is valid; it and the arena outlive this object.
  ScheduleState(const SchedulerConfig& config, Arena& arena, Region region);
  ~ScheduleState();
  ScheduleState(const ScheduleState&) = delete;
  ScheduleState& operator=(const ScheduleState&) = delete;

  // Publishes as many units as there is room for.
  void fill();

  // REQUIRES: kind is kRequest, 1 to position_capacity integers.
  void add_request(std::uint32_t stream, Position request) {
    order_.add_request(stream, std::move(request));
    fill();
  }

  // Returns the output due, another kind of result (such as the end), or the
  // unit to wait for.
  using PollResult = std::variant<NextResult, AwaitedUnit>;
  [[nodiscard]] PollResult poll_next();

  // Returns the result to report after a timeout; empty if the consumer need
  // not wait for the stream any longer.
  [[nodiscard]] std::optional<NextResult> report_timeout(AwaitedUnit awaited);

  // Returns the time until the unit is slow, in s, negative if it is slow now;
  // empty if the unit must not be reported.
  [[nodiscard]] std::optional<double> time_until_slow_s(AwaitedUnit awaited);

  // Returns the report about a slow unit.  A unit is reported only once.
  [[nodiscard]] NextResult report_slow(AwaitedUnit awaited);

  // Marks the output that poll_next() returned last as delivered.  Does nothing
  // if no output is open.
  void advance();

  // Adds a view to the slot of the output due, and returns the slot; nullptr if
  // no output is open.
  [[nodiscard]] ArenaSlot* add_view();

  // Withdraws all units.
  void clear();

  // Withdraws all units and continues from another position.
  void restart(const RunPosition& start);

  // Copies the parts that holders offer out of their slots.
  void take_parts();

  // Frees the slots of withdrawn units whose holders committed or wait for an
  // answer; returns whether there were any.
  bool free_withdrawn_slots();

  // Handle worker events (schedule_state_events.cpp).  on_started() and
  // on_exited() ignore a process whose exit is recorded.
  void on_started(int worker, std::uint32_t generation, int pid);
  // Returns true if the caller must start another process.
  bool on_exited(int worker, std::uint32_t generation);
  void on_exit_status(int worker, std::uint32_t generation, int wait_status);
  void on_worker_notified();
  void on_failed(std::string why);

  // Wakes idle workers and the consumer, so that they check again.  Holders
  // that wait for an answer continue to sleep.
  void wake_everybody();

  [[nodiscard]] const Order& order() const noexcept { return order_; }
  [[nodiscard]] const WorkerTable& workers() const noexcept { return workers_; }

 private:
  // A unit or a part that is being delivered.  It has at least one output.
  struct OpenUnit {
    ArenaSlot* slot = nullptr;  // has a view until the unit is closed
    std::uint64_t bytes = 0;    // used bytes of the slot
    std::uint32_t index = 0;    // the output due
    std::vector<SlotOutput> outputs;
  };

  [[nodiscard]] bool is_range() const noexcept {
    return config_.kind == UnitKind::kRange;
  }
  [[nodiscard]] bool is_ready(std::uint32_t stream) const;
  int select_next_stream();
  [[nodiscard]] bool is_published(std::uint32_t stream) const {
    return !order_.streams()[stream].pending.empty();
  }

  bool publish(std::uint32_t stream);
  bool publish_with_eviction(std::uint32_t stream);
  [[nodiscard]] Position position_before_next_unit(const Stream& stream) const;
  [[nodiscard]] NextResult output_result(std::uint32_t stream) const;
  bool open(std::uint32_t stream);
  bool open_part(std::uint32_t stream, Part part);
  [[nodiscard]] std::unique_ptr<OpenUnit> read_slot(ArenaSlot* slot,
                                                    std::uint32_t outputs,
                                                    std::uint64_t bytes) const;
  void adapt_unit_records(const Lease& lease, const Commit& commit);
  void take_part(Lease& lease);
  void close_unit(std::uint32_t stream);
  void withdraw(std::uint64_t id);
  void withdraw_stream(std::uint32_t stream);
  void poison(Lease& lease, WorkerReport report);
  void recover_units_of(int worker, std::uint32_t generation);
  void prepare_for_successor(std::uint32_t stream, int worker,
                             std::uint32_t generation);
  void wake_workers(std::size_t units);

  const SchedulerConfig& config_;
  Arena& arena_;
  const Region region_;
  LeaseTable leases_;
  Order order_;
  MemoryPolicy memory_;
  WorkerTable workers_;
  Pace pace_;
  std::vector<std::unique_ptr<OpenUnit>> open_units_;  // per stream, or null
  // Why each poisoned unit is not computed, by the id of the pending unit.
  std::map<std::uint64_t, WorkerReport> poisoned_;
  bool needs_fill_ = true;  // something may be published
};

}  // namespace gristmill
