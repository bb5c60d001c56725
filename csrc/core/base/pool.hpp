// A Pool runs tasks in a few threads, for example to prefetch.
//
// Tasks start in the order of the calls of run().  They must not throw and must
// not wait for each other.  A task starts a new thread if no thread is idle, up
// to a limit.  If no thread can be started, the caller runs the task.
//
// Thread safety: any thread may call run() and wait(); the destructors must not
// overlap them.
//
// Fork: a forked child does not have the threads.  There, run() runs the task
// at once, and the destructors ignore the parent's threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "core/base/mutex.hpp"

namespace gristmill {

// Counts tasks that belong together, so that a caller can wait for all of them.
class TaskGroup {
 public:
  TaskGroup();
  // Waits for all tasks of the group.
  ~TaskGroup();
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  // Adds `tasks` future calls of done().
  // REQUIRES: the group was created in this process, not before a fork.
  void expect(std::size_t tasks);
  void done();

  // Returns true when all expected tasks are done.  Returns false in a forked
  // child if some were open at the fork, because they will never be done.
  [[nodiscard]] bool wait() EXCLUDES(mutex_);

  // Like wait(), but waits at most `limit`.  Returns nothing if tasks are still
  // open.
  [[nodiscard]] std::optional<bool> wait_for(std::chrono::milliseconds limit)
      EXCLUDES(mutex_);

 private:
  bool was_empty_at_fork() const NO_THREAD_SAFETY_ANALYSIS;

  const pid_t owner_;  // the process that made the group
  Mutex mutex_;
  Condition all_done_;
  std::size_t open_tasks_ GUARDED_BY(mutex_) = 0;
};

class Pool {
 public:
  // REQUIRES: threads > 0.
  explicit Pool(std::size_t threads);

  // Waits for all tasks.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Calls group.expect(1), runs `task` in a thread of the pool, and then calls
  // group.done().  If the caller runs the task, the group does not count it.
  // REQUIRES: the group outlives the task.
  void run(TaskGroup& group, std::function<void()> task);

  // Returns the maximum number of threads.
  [[nodiscard]] std::size_t threads() const noexcept { return max_threads_; }

 private:
  struct Shared;

  const std::size_t max_threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace gristmill
