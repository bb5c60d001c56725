// A thread that sleeps in epoll_wait, without timeouts, and runs tasks.
//
// The thread runs only tasks: all signals are blocked, and it never enters
// Python.  Tasks run one at a time.
//
// Fork: a child has no such thread.  make_inert() must be called on its copy.
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
  // Identifies a watched descriptor.  Serials are not reused, so an event that
  // was fetched before an unwatch() is ignored.
  using Serial = std::uint64_t;

  // Starts the thread.  It runs `at_end` after stop(), or `on_lost` if the user
  // has closed the descriptors that it needs.  It runs nothing after that.
  // Throws std::system_error if no descriptor or thread can be created.
  EventLoop(Task at_end, Task on_lost);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Any thread may call these four, but a task must not use call() or stop().

  // Queues a task for the thread; returns false if the thread does not run.
  bool post(Task task) EXCLUDES(mutex_);

  // Queues a task for the thread and waits for its end.  If the thread does not
  // run, returns as soon as no task can be running.
  void call(Task task) EXCLUDES(mutex_, running_);

  // Ends the thread and waits for it.  One thread at a time may call it.
  void stop();

  // Called in a forked child: this object must not be used from now on.
  void make_inert() noexcept { inert_.store(true, std::memory_order_relaxed); }

  // Tasks may call these two.

  // Makes the thread run a task whenever these events occur.  Throws
  // std::system_error.
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
  const Fd posted_;  // An eventfd, which is above 0 while tasks wait.
  std::atomic<bool> inert_{false};

  Mutex mutex_;
  std::vector<Task> tasks_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;  // post() rejects all tasks.

  // Held while tasks run.  Lock order: running_, then mutex_.
  Mutex running_;
  bool abandoned_ GUARDED_BY(running_) = false;  // No more tasks may run.

  // unguarded: only the thread uses these, and the constructor before it starts
  std::unordered_map<Serial, Watch> watches_;
  Serial last_serial_ = 0;
  bool stopping_ = false;

  // unguarded: only the constructor and stop() use it; last, since the thread
  // uses the above
  std::thread thread_;
};

}  // namespace gristmill
