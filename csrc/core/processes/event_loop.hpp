// A thread that sleeps in epoll_wait, without time-outs, and runs tasks.
//
// The thread runs nobody else's code: all signals are blocked, and it is never
// in Python.  Tasks run one at a time.
//
// Fork: a child has no such thread; make_inert() says so to the copy there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/processes/spawn.hpp"

namespace gristmill {

class EventLoop {
 public:
  using Task = std::function<void()>;
  // Names a descriptor that is watched.  None is used twice, so an event that
  // was fetched before its descriptor left finds nothing.
  using Serial = std::uint64_t;

  // Starts the thread.  It runs `at_end` after stop(), or `on_lost` where the
  // user has closed the descriptors that it needs, and nothing after either.
  // Throws std::system_error for want of descriptors or threads.
  EventLoop(Task at_end, Task on_lost);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Any thread may call these four.

  // Has the thread run a task; false if there is no such thread.
  bool post(Task task) EXCLUDES(mutex_);

  // Has the thread run a task and waits for its end.  Without such a thread,
  // returns once it is sure that no task runs any more.
  void call(Task task) EXCLUDES(mutex_, running_);

  // Ends the thread.
  void stop();

  // In a forked child: nothing of this object may be touched from now on.
  void make_inert() noexcept { inert_.store(true, std::memory_order_relaxed); }

  // Tasks may call these two.

  // Runs a task whenever these events occur.  Throws std::system_error.
  Serial watch(int fd, std::uint32_t events, Task ready);
  void unwatch(Serial serial);

 private:
  struct Watch {
    int fd;
    Task ready;
  };

  void run();
  void run_tasks() EXCLUDES(mutex_);
  std::vector<Task> refuse_tasks() EXCLUDES(mutex_);

  const Task at_end_;
  const Task on_lost_;
  const Fd epoll_;
  const Fd posted_;  // Above 0 while tasks wait.
  std::atomic<bool> inert_{false};

  Mutex mutex_;
  std::vector<Task> tasks_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;  // No task is taken any more.

  Mutex running_;                                // Held while tasks run.
  bool abandoned_ GUARDED_BY(running_) = false;  // None may run any more.

  // unguarded: only tasks touch these three
  std::unordered_map<Serial, Watch> watches_;
  Serial last_serial_ = 0;
  bool stopping_ = false;

  // unguarded: fixed from the start; last, since it uses the above
  std::thread thread_;
};

}  // namespace gristmill
