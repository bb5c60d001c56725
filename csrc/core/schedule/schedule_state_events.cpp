// Handles worker events, and wakes workers for new units.
#include <utility>

#include "core/base/futex.hpp"
#include "core/schedule/schedule_state.hpp"

namespace gristmill {

void ScheduleState::wake_workers(std::size_t units) {
  if (units == 0) return;
  Control& control = region_.control();
  control.work_sequence.fetch_add(1, std::memory_order_seq_cst);
  // Any worker can claim a range.  Other units can only be claimed by their
  // owners, so all workers must be woken.
  const int max_woken = is_range() && units < kMaxWorkers
                            ? static_cast<int>(units)
                            : kAllSleepers;
  for (std::uint32_t w = 0; w < config_.workers; ++w) {
    if (region_.cell(w).asleep.load(std::memory_order_seq_cst) == 0) continue;
    return futex_wake(&control.work_sequence, max_woken);
  }
}

void ScheduleState::wake_everybody() {
  Control& control = region_.control();
  control.work_sequence.fetch_add(1, std::memory_order_seq_cst);
  control.done_sequence.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&control.work_sequence, kAllSleepers);
  futex_wake(&control.done_sequence, kAllSleepers);
}

void ScheduleState::on_started(int worker, std::uint32_t generation, int pid) {
  if (!workers_.is_current(worker, generation)) return;
  workers_.record_start(worker, generation, pid);
  wake_everybody();
}

bool ScheduleState::on_exited(int worker, std::uint32_t generation) {
  if (!workers_.is_current(worker, generation)) return false;
  bool needs_successor = workers_.record_exit(worker, generation);
  if (config_.exits_final) {
    needs_successor = false;
    workers_.fail(workers_.describe(worker, generation, nullptr));
  }
  // The part that the process offered last is complete, so it need not be
  // computed again.
  take_parts();
  recover_units_of(worker, generation);
  if (config_.kind == UnitKind::kSequential) {
    const auto streams = static_cast<std::uint32_t>(open_units_.size());
    for (auto s = static_cast<std::uint32_t>(worker); s < streams;
         s += config_.workers) {
      prepare_for_successor(s, worker, generation);
    }
  }
  workers_.clear_cell(worker);
  needs_fill_ = true;
  // The process may have received a wake-up meant for another one, or may have
  // committed a unit without waking the consumer.
  wake_everybody();
  return needs_successor;
}

void ScheduleState::take_parts() {
  for (const std::uint64_t id : leases_.units_with_part()) {
    Lease& lease = leases_.at(id);
    if (!lease.withdrawn) take_part(lease);
  }
}

// Makes the units that an exited worker held claimable again, or poisons them
// if they failed too often.
void ScheduleState::recover_units_of(int worker, std::uint32_t generation) {
  for (const std::uint64_t id :
       leases_.units_held_by(static_cast<std::uint32_t>(worker))) {
    Lease& lease = leases_.at(id);
    arena_.charge_populated(lease.slot, leases_.populated(lease));
    ++lease.attempts;
    if (lease.withdrawn) {
      arena_.give_back(lease.slot);
      leases_.take(id);
    } else if (lease.attempts <= config_.max_restarts) {
      // Cannot fail without a new position.
      static_cast<void>(leases_.make_claimable_again(lease, nullptr));
    } else {
      poison(lease, workers_.describe(worker, generation, &lease));
    }
  }
}

void ScheduleState::poison(Lease& lease, WorkerReport report) {
  leases_.poison(lease);
  poisoned_.insert_or_assign(lease.id, std::move(report));
}

// Makes the units of a stream whose owner exited claimable by the owner's
// successor, which does not have the owner's state of the stream.  The first
// unit that is not computed therefore starts from the position after the unit
// before it.
void ScheduleState::prepare_for_successor(std::uint32_t s, int worker,
                                          std::uint32_t generation) {
  const Stream& stream = order_.stream(s);
  Position position = stream.opened_position;
  std::size_t computed_count = 0;
  for (; computed_count < stream.pending.size(); ++computed_count) {
    const Lease& lease = leases_.at(stream.pending[computed_count]);
    if (!leases_.is_computed(lease)) break;
    Position after = leases_.commit_of(lease).position_after;
    if (!after.empty()) position = std::move(after);
  }
  if (computed_count == stream.pending.size()) return;
  Lease& first = leases_.at(stream.pending[computed_count]);
  if (!first.poisoned && !leases_.make_claimable_again(first, &position)) {
    WorkerReport report = workers_.describe(worker, generation, &first);
    report.text = "There is no memory for the position to continue from.";
    poison(first, std::move(report));
  }
  if (!first.poisoned) {
    // The successor has not refused any of these, and computes them in order.
    memory_.retry_refused(stream, computed_count + 1, nullptr);
    return;
  }
  // The units after a unit that is never computed cannot be computed, either.
  for (const std::uint64_t id : order_.seal_after(s, computed_count))
    withdraw(id);
}

void ScheduleState::on_exit_status(int worker, std::uint32_t generation,
                                   int wait_status) {
  workers_.record_exit_status(worker, generation, wait_status);
  for (auto& [id, report] : poisoned_) {
    report.record_exit_status(worker, generation, wait_status);
  }
  wake_everybody();
}

void ScheduleState::on_worker_notified() {
  const bool freed = free_withdrawn_slots();
  take_parts();
  // The consumer may wait for memory, or must raise an error if there is none.
  if (!memory_.grant_all() || freed) wake_everybody();
}

void ScheduleState::on_failed(std::string why) {
  workers_.fail({.at_start = true, .text = std::move(why)});
  wake_everybody();
}

}  // namespace gristmill
