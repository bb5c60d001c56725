// The interface between the scheduler and the supervisor of processes.
//
// WorkerEvents: the supervisor reports events, on its own thread, without
// holding a lock that the receiver could need.
// WorkerStarter: the scheduler requests processes, from any thread, without
// holding its own lock.  The call must return without waiting.
//
// A worker is identified by its index.  Its generation is incremented for every
// process that takes the index, so that a late report is recognized.
#pragma once

#include <cstdint>
#include <string>

namespace gristmill {

struct WorkerEvents {
  virtual ~WorkerEvents() = default;

  // The supervisor has the worker's pidfd, so the worker may be given work.
  virtual void on_started(int worker, std::uint32_t generation, int pid) = 0;

  // The worker's pidfd is readable: none of its threads writes any longer.
  // Also called if a start_worker() produced no process.
  virtual void on_exited(int worker, std::uint32_t generation) = 0;

  // Reports the wait status, as in waitpid(2), after on_exited(); -1 if it is
  // unknown.  Called once per exit; an error waits for it briefly.
  virtual void on_exit_status(int worker, std::uint32_t generation,
                              int wait_status) = 0;

  // A worker wrote to the eventfd, because it needs a larger slot or offers a
  // part.
  virtual void on_worker_notified() = 0;

  // No more workers can be started; `why` is shown to the user.
  virtual void on_failed(std::string why) = 0;
};

struct WorkerStarter {
  virtual ~WorkerStarter() = default;

  // Starts a process for this worker.  The result is reported by on_started()
  // or on_exited().
  virtual void start_worker(int worker, std::uint32_t generation) = 0;
};

}  // namespace gristmill
