// What the scheduler and the supervisor of processes ask of each other.
//
// Crew: the supervisor reports here, on its own thread, with no lock held.
// Hirer: the scheduler asks here; it may be called from any thread, holds no
// lock of its own meanwhile, and expects the call to return without waiting.
//
// A worker is named by its index; its generation grows by one with every
// process that takes the index, so that a late report is recognised.
#pragma once

#include <cstdint>
#include <string>

namespace gristmill {

struct Crew {
  virtual ~Crew() = default;

  // The pidfd of this worker is held from now on: it may be given work.
  virtual void born(int worker, std::uint32_t generation, int pid) = 0;

  // The worker's pidfd is readable: none of its threads writes any more.  Also
  // the answer to a hire() that produced no process.
  virtual void died(int worker, std::uint32_t generation) = 0;

  // How it ended, in the form of waitpid(2), before or after died(); -1 when
  // nobody can tell.  Expected once per death: WorkerDied waits for it briefly.
  virtual void how(int worker, std::uint32_t generation, int wait_status) = 0;

  // A worker wrote to the knock eventfd: it needs a larger slot.
  virtual void knocked() = 0;

  // No worker can be had any more; `why` is shown to the user.
  virtual void failed(std::string why) = 0;
};

struct Hirer {
  virtual ~Hirer() = default;

  // Start a process for this worker; answered by born() or died().
  virtual void hire(int worker, std::uint32_t generation) = 0;

  // End this worker's process with SIGKILL; answered by died().
  virtual void kill(int worker) = 0;
};

}  // namespace gristmill
