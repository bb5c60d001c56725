// A Pool is a few threads that run tasks: they read ahead of need.
//
// Tasks start in the order in which they were given.  They must not throw and
// must not wait for each other.
//
// Thread safety: any thread may call run() and wait(); the destructor must not
// overlap them.
//
// Fork: the threads stay behind in the parent.  In a forked child run() runs
// the task at once, and the destructor leaves the parent's threads alone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gristmill {

// Counts tasks that belong together and are waited for as one.
class TaskGroup {
 public:
  // `tasks` more will call done().
  void expect(std::size_t tasks);
  void done();

  // Returns when every task expected so far is done.
  void wait();

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::size_t open_ = 0;  // Guarded by mutex_.
};

class Pool {
 public:
  // REQUIRES: threads > 0.  They start with the first task.
  explicit Pool(std::size_t threads);

  // Waits for the tasks that were given.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Runs `task` on a thread of the pool and then tells `group`.
  // REQUIRES: the group outlives the task.
  void run(TaskGroup& group, std::function<void()> task);

  [[nodiscard]] std::size_t threads() const noexcept { return count_; }

 private:
  struct Shared;

  void work();
  void start();

  const std::size_t count_;
  const std::unique_ptr<Shared> shared_;
  std::vector<std::thread> threads_;  // Guarded by the mutex in shared_.
};

}  // namespace gristmill
