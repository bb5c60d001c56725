// Groups of worker processes; supervisor.hpp describes how they start.
//
// Fork: a child that the user's process forks has no supervisor.  Engine
// descriptors are closed there, WorkerGroups do nothing, and the first
// open_group() creates a new supervisor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/processes/spawn.hpp"
#include "core/schedule/worker_events.hpp"

namespace gristmill {

class Supervisor;
using Modules = std::vector<std::string>;

// The data for the workers of a group.  The descriptors are copied; the caller
// keeps ownership.
struct GroupSpec {
  int arena_fd = -1;
  int blob_fd = -1;
  std::string setup;  // A pickled dict; see _workers/parent.py.
  // The modules that the launcher imports before it forks the zygote.  If there
  // are none, any launcher that is ready is used.
  Modules modules = {};
  // The program's other descriptors, which its zygotes get in this order.
  std::vector<int> inherited = {};
};

// The workers of one scheduler.  supervisor.cpp defines the functions.
//
// Thread safety: any thread may call any function, but no other call may
// overlap with dismiss() or the destructor.
class WorkerGroup final : public WorkerStarter {
 public:
  ~WorkerGroup() override { dismiss(); }
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Requests a worker process.  `generation` is the caller's own count.
  // REQUIRES: each pair of arguments is used only once.
  void start_worker(int worker, uint32_t generation) override;

  // Sends SIGKILL to every process that is worker `worker`, or will be after
  // its start.  on_exited() reports the result.
  void kill(int worker);

  // Returns an eventfd.  When a worker writes to it, on_worker_notified() is
  // called.  Valid until dismiss(); closed in a forked child.
  [[nodiscard]] int notify_fd() const noexcept { return notify_fd_; }

  // Ends the group's processes.  Kills processes that are starting, and after
  // one second the workers that have not left by themselves.  Does not wait for
  // the processes.  No callback runs after the return.
  // REQUIRES: not called from a callback, or with a lock that callbacks take.
  void dismiss();

 private:
  friend class Supervisor;
  WorkerGroup(Supervisor* supervisor, uint32_t id, int notify_fd)
      : supervisor_(supervisor), id_(id), notify_fd_(notify_fd) {}

  Supervisor* const supervisor_;
  const uint32_t id_;
  const int notify_fd_;
  bool dismissed_ = false;
};

// Sets the command for the next launcher of this process.  This is cheap, since
// nothing is started before the first open_group().
void configure_supervisor(Command command);

// Starts the launcher for a group with these modules if it does not run, so
// that it imports them while the caller prepares the group's program.  Throws
// the same exceptions as open_group().
void start_launcher(const Modules& modules);

// Opens a group.  Starts the supervisor of this process and the launcher if
// they do not run.  Throws std::system_error if no descriptor or thread can be
// created, and std::logic_error before configure_supervisor().
// REQUIRES: `events` lives until dismiss() returns; its methods do not throw.
[[nodiscard]] std::unique_ptr<WorkerGroup> open_group(WorkerEvents* events,
                                                      const GroupSpec& spec);

// Dismisses every group, ends the launchers and joins the supervisor's thread.
// For use at exit, before any object that a group's events need is destroyed.
// A later open_group() starts a new supervisor.
void shutdown_supervisor();

}  // namespace gristmill
