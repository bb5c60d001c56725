// What is known of the workers' processes, and which of them to name where no
// output comes.
//
// A worker is named by its index; its generation grows by one with every
// process that takes the index, so that a late report is recognised.
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

// A worker's process, as far as is known.
struct Process {
  int pid = 0;  // of the last one that started, 0 before
  bool alive = false;
  std::optional<int> wait_status = {};  // of that one, as waitpid(2)
  std::uint32_t generation = 1;
  std::uint32_t failed_starts = 0;   // in a row
  std::uint32_t start_timeouts = 0;  // that passed during its start
};

class WorkerTable {
 public:
  // The region's cells are set up already.
  WorkerTable(Region region, std::uint32_t workers)
      : region_(region), processes_(workers) {}

  // Whether the process is the worker's last: what is said about others came
  // late.
  [[nodiscard]] bool is_current(int worker, std::uint32_t generation) const {
    return process(worker).generation == generation;
  }

  // Lets the process touch units.  REQUIRES: is_current().
  void started(int worker, std::uint32_t generation, int pid);

  // Returns whether another process may do better than the one that ended; if
  // not, fatal() says why.  Its cell stays as it left it.
  // REQUIRES: is_current().
  bool exited(int worker, std::uint32_t generation);

  // Makes the cell ready for the next process.
  void clear_cell(int worker);

  // How a process ended, after exited().
  void exit_status(int worker, std::uint32_t generation, int wait_status);

  // No worker can be had any more.  Only the first reason counts.
  void fail(WorkerReport report) {
    if (!fatal_) fatal_ = std::move(report);
  }
  [[nodiscard]] const std::optional<WorkerReport>& fatal() const {
    return fatal_;
  }

  // A unit was computed: starts that fail are no longer failures in a row.
  void unit_done();

  // What to say about the end of a process, in whose hands a unit may be.
  [[nodiscard]] WorkerReport describe(int worker, std::uint32_t generation,
                                      const Lease* lease) const;

  // The time since the claim of the unit, in s; 0 if it is not claimed.
  [[nodiscard]] double busy_s(const LeaseTable& leases,
                              const Lease& lease) const;

  // Counts a timeout for each worker whose process is starting.
  void count_start_timeout();

  // Returns which worker keeps the consumer waiting for a unit: its holder; if
  // it is free, an idle worker that may take it, else the one that is busy for
  // longest.  No worker, while one that may take it is starting, unless that
  // has taken several timeouts.
  [[nodiscard]] WorkerReport awaited(const LeaseTable& leases,
                                     const Lease& due) const;

  [[nodiscard]] const std::vector<Process>& processes() const {
    return processes_;
  }

 private:
  [[nodiscard]] bool is_starting(int worker) const;
  [[nodiscard]] Cell& cell(int worker) const {
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
