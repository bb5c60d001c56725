#include "core/schedule/worker_table.hpp"

#include <algorithm>

#include "core/schedule/worker_counts.hpp"

namespace gristmill {
namespace {

// A report may name a starting worker after this many timeouts.
constexpr std::uint32_t kMaxStartTimeouts = 4;
// After this many exits in a row before a worker's first claim, no more workers
// are started.
constexpr std::uint32_t kMaxFailedStarts = 3;

}  // namespace

void WorkerTable::record_start(int worker, std::uint32_t generation, int pid) {
  Process& process = this->process(worker);
  process.pid = pid;
  process.alive = true;
  process.wait_status.reset();
  cell(worker).pid.store(static_cast<std::uint32_t>(pid),
                         std::memory_order_relaxed);
  cell(worker).admitted.store(generation, std::memory_order_release);
}

bool WorkerTable::record_exit(int worker, std::uint32_t generation) {
  Process& process = this->process(worker);
  process.alive = false;
  process.wait_status.reset();
  process.start_timeouts = 0;
  ++process.generation;
  const WorkerCell& cell = this->cell(worker);
  const std::uint32_t error_len =
      std::min(cell.error_len.load(std::memory_order_acquire), kErrorBytes);
  if (cell.started.load(std::memory_order_acquire) == generation &&
      error_len == 0) {
    process.failed_starts = 0;
    return true;
  }
  // A program that reports a startup error would fail again.
  if (++process.failed_starts < kMaxFailedStarts && error_len == 0) return true;
  WorkerReport report = describe(worker, generation, nullptr);
  report.at_start = true;
  report.attempts = process.failed_starts;
  report.text.assign(cell.error, error_len);
  fail(std::move(report));
  return false;
}

void WorkerTable::clear_cell(int worker) {
  WorkerCell& cell = this->cell(worker);
  cell.admitted.store(0, std::memory_order_relaxed);
  cell.pid.store(0, std::memory_order_relaxed);
  cell.asleep.store(0, std::memory_order_relaxed);
  cell.current_record.store(-1, std::memory_order_relaxed);
}

void WorkerTable::record_exit_status(int worker, std::uint32_t generation,
                                     int wait_status) {
  Process& process = this->process(worker);
  if (!process.alive && is_current(worker, generation + 1)) {
    process.wait_status = wait_status;
  }
  if (fatal_) fatal_->record_exit_status(worker, generation, wait_status);
}

void WorkerTable::record_unit_done() {
  for (Process& process : processes_) process.failed_starts = 0;
}

WorkerReport WorkerTable::describe(int worker, std::uint32_t generation,
                                   const Lease* lease) const {
  WorkerReport report;
  report.worker = worker;
  report.generation = generation;
  report.pid = process(worker).pid;
  if (lease != nullptr) {
    report.stream = static_cast<int>(lease->stream);
    report.attempts = lease->attempts;
    report.record = cell(worker).current_record.load(std::memory_order_relaxed);
  }
  return report;
}

bool WorkerTable::is_starting(int worker) const {
  const Process& process = this->process(worker);
  if (!process.alive) return true;
  return cell(worker).started.load(std::memory_order_acquire) !=
             process.generation &&
         process.start_timeouts < kMaxStartTimeouts;
}

void WorkerTable::count_start_timeout() {
  for (int worker = 0; worker < std::ssize(processes_); ++worker) {
    Process& process = this->process(worker);
    if (process.alive && is_starting(worker)) ++process.start_timeouts;
  }
}

double WorkerTable::busy_s(const LeaseTable& leases, const Lease& lease) const {
  const UnitWord word = leases.word(lease);
  if (word.state() == UnitState::kFree || word.holder() == 0) return 0;
  const WorkerCell& cell = region_.cell(word.holder() - 1);
  const std::int64_t claimed_ns =
      cell.counts.claimed_ns.load(std::memory_order_relaxed);
  if (claimed_ns == 0) return 0;
  return 1e-9 * static_cast<double>(monotonic_ns() - claimed_ns);
}

WorkerReport WorkerTable::awaited_worker(const LeaseTable& leases,
                                         const Lease& due) const {
  WorkerReport report;
  report.stream = static_cast<int>(due.stream);
  // The unit whose holder the report names.
  const Lease* held = &due;
  if (leases.state(due) == UnitState::kFree) {
    held = nullptr;
    bool starting = false;
    for (std::uint32_t w = 0; w < processes_.size(); ++w) {
      if (due.owner != 0 && due.owner != w + 1) continue;
      if (is_starting(static_cast<int>(w))) {
        starting = true;
        continue;
      }
      const std::vector<std::uint64_t> units = leases.units_held_by(w);
      if (units.empty()) {
        report.worker = static_cast<int>(w);
        report.idle = true;
      } else if (held == nullptr || units.front() < held->id) {
        held = &leases.all().at(units.front());
      }
    }
    if (report.idle || starting) return report;
  }
  const std::uint32_t holder = leases.word(*held).holder();
  if (holder == 0) return report;
  report.worker = static_cast<int>(holder) - 1;
  report.stream = static_cast<int>(held->stream);
  report.record =
      cell(report.worker).current_record.load(std::memory_order_relaxed);
  return report;
}

}  // namespace gristmill
