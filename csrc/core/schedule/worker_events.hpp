// What the scheduler and the supervisor of processes ask of each other.
//
// WorkerEvents: the supervisor reports here, on its own thread, with no lock
// held that the receiver could want.
// WorkerStarter: the scheduler asks here; it may be called from any thread,
// holds no lock of its own meanwhile, and expects the call to return without
// waiting.
//
// A worker is named by its index; its generation grows by one with every
// process that takes the index, so that a late report is recognised.
#pragma once

#include <cstdint>
#include <string>

namespace gristmill {

struct WorkerEvents {
  virtual ~WorkerEvents() = default;

  // The pidfd of this worker is held from now on: it may be given work.
  virtual void on_started(int worker, std::uint32_t generation, int pid) = 0;

  // The worker's pidfd is readable: none of its threads writes any more.  Also
  // the answer to a start_worker() that produced no process.
  virtual void on_exited(int worker, std::uint32_t generation) = 0;

  // How it ended, in the form of waitpid(2), after on_exited(); -1 when nobody
  // can tell.  Expected once per exit: an error waits for it briefly.
  virtual void on_exit_status(int worker, std::uint32_t generation,
                              int wait_status) = 0;

  // A worker wrote to the eventfd of slot requests: it needs a larger slot.
  virtual void on_slot_requested() = 0;

  // No worker can be had any more; `why` is shown to the user.
  virtual void on_failed(std::string why) = 0;
};

struct WorkerStarter {
  virtual ~WorkerStarter() = default;

  // Starts a process for this worker; answered by on_started() or on_exited().
  virtual void start_worker(int worker, std::uint32_t generation) = 0;
};

}  // namespace gristmill
