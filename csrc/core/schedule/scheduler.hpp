// The parent's object: publishes units, frees the units of workers that exited,
// and delivers outputs in order.
//
// next() sleeps until the unit that is due is committed.  If outputs may be out
// of order, or memory is short, any commit wakes it.  Before it reports a dead
// worker, it waits up to 2 s for the wait status.  advance() moves the position
// after all Python objects of the output exist, so an exception or signal
// before that loses nothing.
//
// Thread safety: start() comes first.  One consumer thread at a time calls
// next, advance and add_view; no such call may overlap reset().  The supervisor
// thread calls the functions of WorkerEvents.  Any thread may call add_request,
// close and the functions that read the state.  A private mutex guards the
// schedule.  It is not held while next() sleeps or while the WorkerStarter is
// called.
//
// Fork: in a child, next() returns kForked, add_view() returns nullptr, and
// calls that would change something do nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/base/status.hpp"
#include "core/memory/arena.hpp"
#include "core/schedule/next_result.hpp"
#include "core/schedule/schedule_state.hpp"
#include "core/schedule/worker_counts.hpp"
#include "core/schedule/worker_events.hpp"

namespace gristmill {

class Scheduler final : public WorkerEvents {
 public:
  static Result<std::unique_ptr<Scheduler>> create(SchedulerConfig config);
  // REQUIRES: the supervisor makes no more calls; workers may still be alive.
  ~Scheduler() override;

  // Requests the workers.  If the starter is null, the caller starts them.
  // REQUIRES: the starter lives until no more functions of WorkerEvents are
  // called, that is, until WorkerGroup::dismiss() has returned.
  void start(WorkerStarter* starter);

  // Queues a request for the stream's owner: 1 to position_capacity integers,
  // which the core does not interpret.
  // REQUIRES: kind is kRequest.
  Status add_request(std::uint32_t stream, Position request);

  // Waits for the output due and returns it, or another kind of result.  For
  // requests, kEnd means that all requests are answered.  Without a call of
  // advance(), the next call returns the same output.  A negative timeout waits
  // forever.
  [[nodiscard]] NextResult next(double timeout_s = -1.0);

  // Marks the output that next() returned last as delivered.  Does nothing if
  // it is delivered already, after close(), and in a fork.
  void advance();

  // Adds a view to the slot of the output that next() returned last, and
  // returns the slot; nullptr after advance() or close(), and in a fork.  The
  // caller must call release_view().
  [[nodiscard]] ArenaSlot* add_view();

  // Withdraws all units and continues from another position.
  Status reset(const RunPosition& start);

  // Ends waits and asks workers to leave.  May be called several times.
  void close();

  [[nodiscard]] RunPosition position();
  // Returns the process of each worker, in the order of their numbers.
  [[nodiscard]] std::vector<Process> processes();
  // The counts that each worker publishes; empty in a fork.
  [[nodiscard]] std::vector<WorkerCounts> counts();
  [[nodiscard]] Region region() const noexcept { return region_; }
  [[nodiscard]] int arena_fd() const noexcept { return arena_->fd(); }

  // Returns the slot, of any scheduler of this process, that contains the
  // address, or nullptr.  REQUIRES: the caller holds a view of that slot.
  [[nodiscard]] static ArenaSlot* slot_at(std::uintptr_t address);

  void on_started(int worker, std::uint32_t generation, int pid) override;
  void on_exited(int worker, std::uint32_t generation) override;
  void on_exit_status(int worker, std::uint32_t generation,
                      int wait_status) override;
  void on_worker_notified() override;
  void on_failed(std::string why) override;

 private:
  class Registry;
  Scheduler(SchedulerConfig config, std::unique_ptr<Arena> arena);

  [[nodiscard]] bool is_over() const REQUIRES(mutex_) {
    return closed_ || forked_;
  }

  const SchedulerConfig config_;
  // Guarded by mutex_, except for its descriptor.
  const std::unique_ptr<Arena> arena_;
  const Region region_;
  WorkerStarter* starter_ = nullptr;  // unguarded: fixed by start()

  Mutex mutex_;
  ScheduleState schedule_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  bool forked_ GUARDED_BY(mutex_) = false;  // This is a copy in a forked child.
};

}  // namespace gristmill
