// Records the state of each worker's process, and chooses the worker that a
// timeout report names.
//
// A worker is identified by its index.  Its generation is incremented when its
// process exits, so that a late report about that process can be ignored.
//
// Thread safety: external synchronization (the scheduler's mutex).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/memory/control.hpp"
#include "core/schedule/lease.hpp"
#include "core/schedule/next_result.hpp"

namespace gristmill {

// The last known state of a worker's process.
struct Process {
  int pid = 0;  // the last process that started, 0 before
  bool alive = false;
  std::optional<int> wait_status = {};  // as waitpid(2); empty if unknown
  std::uint32_t generation = 1;
  std::uint32_t failed_starts = 0;   // in a row
  std::uint32_t start_timeouts = 0;  // timeouts during its start
};

class WorkerTable {
 public:
  // The region's cells are initialized already.
  WorkerTable(Region region, std::uint32_t workers)
      : region_(region), processes_(workers) {}

  // Returns true until the exit of the process is recorded.  Reports on other
  // processes are ignored.
  [[nodiscard]] bool is_current(int worker, std::uint32_t generation) const {
    return process(worker).generation == generation;
  }

  // Admits the process: it may use units.  REQUIRES: is_current().
  void record_start(int worker, std::uint32_t generation, int pid);

  // Records an exit.  Returns false if the program reported a startup error or
  // failed to start too often in a row; fatal() then contains the reason.  The
  // cell is not changed.
  // REQUIRES: is_current().
  bool record_exit(int worker, std::uint32_t generation);

  // Prepares the cell for the next process.
  void clear_cell(int worker);

  // Records the wait status of a process, after record_exit().
  void record_exit_status(int worker, std::uint32_t generation,
                          int wait_status);

  // Records that no more workers can be started.  Only the first reason counts.
  void fail(WorkerReport report) {
    if (!fatal_) fatal_ = std::move(report);
  }
  [[nodiscard]] const std::optional<WorkerReport>& fatal() const {
    return fatal_;
  }

  // Records that a unit was computed, which resets the counts of failed starts.
  void record_unit_done();

  // Returns a report on the end of a process.  `lease` is a unit that it held,
  // or null.
  [[nodiscard]] WorkerReport describe(int worker, std::uint32_t generation,
                                      const Lease* lease) const;

  // Returns the time since the claim of the unit, in s; 0 if it is not claimed.
  [[nodiscard]] double busy_s(const LeaseTable& leases,
                              const Lease& lease) const;

  // Counts a timeout for each worker whose process is starting.
  void count_start_timeout();

  // Returns a report on the worker that the consumer of the unit `due` waits
  // for.  This is the holder of the unit.  If the unit is free, it is an idle
  // worker that may claim it, else the worker with the oldest unit of those
  // that may claim it.  If none is idle, the report names no worker while one
  // that may claim the unit is starting, unless the start has taken several
  // timeouts.
  [[nodiscard]] WorkerReport awaited_worker(const LeaseTable& leases,
                                            const Lease& due) const;

  [[nodiscard]] const std::vector<Process>& processes() const {
    return processes_;
  }

 private:
  [[nodiscard]] bool is_starting(int worker) const;
  [[nodiscard]] WorkerCell& cell(int worker) const {
    return region_.cell(static_cast<std::uint32_t>(worker));
  }
  [[nodiscard]] const Process& process(int worker) const {
    return processes_[static_cast<std::size_t>(worker)];
  }
  [[nodiscard]] Process& process(int worker) {
    return processes_[static_cast<std::size_t>(worker)];
  }

  const Region region_;
  std::vector<Process> processes_;
  std::optional<WorkerReport> fatal_;
};

}  // namespace gristmill
