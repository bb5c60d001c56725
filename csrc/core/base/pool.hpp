// A Pool is a few threads that run tasks: they read ahead of need.
//
// Tasks start in the order in which they were given.  They must not throw and
// must not wait for each other.  A thread is started when a task finds no other
// idle, up to a limit; where none can be started the caller runs the task.
//
// Thread safety: any thread may call run() and wait(); the destructors must not
// overlap them.
//
// Fork: the threads stay behind in the parent.  In a forked child run() runs
// the task at once, and the destructors leave the parent's threads alone.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "core/base/mutex.hpp"

namespace gristmill {

// Counts tasks that belong together and are waited for as one.
class TaskGroup {
 public:
  TaskGroup();
  // Waits for the tasks.
  ~TaskGroup();
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  // `tasks` more will call done().
  // REQUIRES: the group was made in this process, not before a fork.
  void expect(std::size_t tasks);
  void done();

  // Returns true when every task expected so far is done; false in a forked
  // child if some were open at the fork, because they never will be.
  [[nodiscard]] bool wait() EXCLUDES(mutex_);

  // As wait(), but for at most so long; empty if tasks are open still.
  [[nodiscard]] std::optional<bool> wait_for(std::chrono::milliseconds most)
      EXCLUDES(mutex_);

 private:
  bool was_empty() const NO_THREAD_SAFETY_ANALYSIS;

  const pid_t owner_;
  Mutex mutex_;
  Condition empty_;
  std::size_t open_ GUARDED_BY(mutex_) = 0;
};

class Pool {
 public:
  // REQUIRES: threads > 0.
  explicit Pool(std::size_t threads);

  // Waits for the tasks that were given.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Runs `task` on a thread of the pool and then tells `group`.
  // REQUIRES: the group outlives the task.
  void run(TaskGroup& group, std::function<void()> task);

  // How many there are at most.
  [[nodiscard]] std::size_t threads() const noexcept { return most_; }

 private:
  struct Shared;

  const std::size_t most_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace gristmill
