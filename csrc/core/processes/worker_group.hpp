// Worker processes for whoever wants some: see supervisor.hpp for how.
//
// Fork: a child that the user's process forks has no supervisor.  Engine
// descriptors are closed there, WorkerGroups do nothing, and the first
// open_group() makes a supervisor of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/processes/spawn.hpp"
#include "core/schedule/worker_events.hpp"

namespace gristmill {

class Supervisor;
using Modules = std::vector<std::string>;

// What the workers of a group get.  The descriptors are copied, not taken.
struct GroupSpec {
  int arena_fd = -1;
  int blob_fd = -1;
  std::string setup;  // A pickled dict; see _workers/parent.py.
  // What the zygote should find imported.  A group that wants nothing takes
  // any launcher that is ready.
  Modules modules = {};
  // Other descriptors of the program, which its zygotes get in this order.
  std::vector<int> inherited = {};
};

// The workers of one scheduler.
//
// Thread safety: any thread may call anything but dismiss() and the destructor,
// which nothing may overlap.
class WorkerGroup final : public WorkerStarter {
 public:
  ~WorkerGroup() override { dismiss(); }
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Asks for a worker.  `generation` is the caller's own count.
  // REQUIRES: the pair is used once.
  void start_worker(int worker, uint32_t generation) override;

  // Kills every process that is or is about to be worker `worker` with SIGKILL;
  // answered by on_exited().
  void kill(int worker);

  // An eventfd that workers write to have on_slot_requested() called.  Valid
  // until dismiss(); closed in a forked child.
  [[nodiscard]] int slot_request_fd() const noexcept {
    return slot_request_fd_;
  }

  // Ends the group's processes: kills those that start, and those workers that
  // have not left by themselves a second later.  No callback runs after the
  // return, which waits for none of them.
  // REQUIRES: called on no callback, and without a lock that callbacks take.
  void dismiss();

 private:
  friend class Supervisor;
  WorkerGroup(Supervisor* supervisor, uint32_t id, int slot_request_fd)
      : supervisor_(supervisor), id_(id), slot_request_fd_(slot_request_fd) {}

  Supervisor* const supervisor_;
  const uint32_t id_;
  const int slot_request_fd_;
  bool dismissed_ = false;
};

// How the next launcher of this process is started.  Cheap: nothing starts
// before the first open_group().
void configure_supervisor(Command command);

// Starts the launcher of a group with these modules if there is none, so that
// it imports them while the caller makes the group's program.  Throws as
// open_group() does.
void start_launcher(const Modules& modules);

// Starts the supervisor of this process and its launcher if there is none.
// Throws std::system_error for want of descriptors or threads, and
// std::logic_error before configure_supervisor().
// REQUIRES: `events` lives until dismiss() returns; its methods do not throw.
[[nodiscard]] std::unique_ptr<WorkerGroup> open_group(WorkerEvents* events,
                                                      const GroupSpec& spec);

// Dismisses every group, ends the launcher and joins the supervisor thread; for
// use at exit, before anything that a group's events need is gone.  A later
// open_group() starts again.
void shutdown_supervisor();

}  // namespace gristmill
