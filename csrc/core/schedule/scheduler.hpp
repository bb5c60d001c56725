// The parent's object: publishes units, frees those of workers that exited, and
// delivers outputs in order.
//
// next() waits for the commit of one unit and nothing else.  The position moves
// in advance(), after all Python objects of the output exist, so an exception
// or signal before that loses nothing.
//
// Thread safety: one consumer thread at a time calls next, advance, hold and
// reset; the supervisor thread calls those of WorkerEvents; anybody may call
// close and the readers of the state.  One private mutex, never held while
// waiting, nor while calling the WorkerStarter.
//
// Fork: in a child every call does nothing, and next() says so.
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
  // REQUIRES: the supervisor makes no more calls; workers may still live.
  ~Scheduler() override;

  // Asks for the workers.  Without a starter, somebody else brings them.
  // REQUIRES: the starter outlives the scheduler or dismisses it first.
  void start(WorkerStarter* starter);

  // Adds a request to the stream's owner: 1 to position_capacity integers,
  // which the core does not interpret.
  // REQUIRES: kind is kRequest.
  Status ask(std::uint32_t stream, Position request);

  // The output due, once it is there; of requests kEnd says that nothing is
  // asked for.  Called again without advance() it returns the same output.  A
  // negative timeout waits for ever.
  [[nodiscard]] NextResult next(double timeout_s = -1.0);

  // The output that next() returned last is delivered.
  void advance();

  // One more view of the slot of the output that next() returned last, to be
  // ended by release_view(); nullptr after advance() or close().
  [[nodiscard]] ArenaSlot* hold();

  // Withdraws everything and goes on from another position.
  Status reset(const RunPosition& start);

  // Ends waits and tells workers to leave.  May be called again.
  void close();

  [[nodiscard]] RunPosition position();
  [[nodiscard]] std::vector<Process> processes();
  // What each worker tells of itself; nothing in a fork.
  [[nodiscard]] std::vector<WorkerCounts> counts();
  [[nodiscard]] Region region() const noexcept { return region_; }
  [[nodiscard]] int arena_fd() const noexcept { return arena_->fd(); }

  // The slot of any scheduler of this process that the address lies in, or
  // nullptr.  REQUIRES: the caller keeps a view of what is there.
  [[nodiscard]] static ArenaSlot* slot_at(std::uintptr_t address);

  void on_started(int worker, std::uint32_t generation, int pid) override;
  void on_exited(int worker, std::uint32_t generation) override;
  void on_exit_status(int worker, std::uint32_t generation,
                      int wait_status) override;
  void on_slot_requested() override;
  void on_failed(std::string why) override;

 private:
  class All;
  Scheduler(SchedulerConfig config, std::unique_ptr<Arena> arena);

  [[nodiscard]] bool is_over() const REQUIRES(mutex_) {
    return closed_ || forked_;
  }

  const SchedulerConfig config_;
  const std::unique_ptr<Arena> arena_;  // Used by schedule_, and in forks.
  const Region region_;
  WorkerStarter* starter_ = nullptr;  // unguarded: fixed by start()

  Mutex mutex_;
  ScheduleState schedule_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  bool forked_ GUARDED_BY(mutex_) = false;  // This is a child's copy.
};

}  // namespace gristmill
