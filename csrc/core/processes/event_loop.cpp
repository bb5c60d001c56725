#include "core/processes/event_loop.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <future>
#include <span>
#include <system_error>
#include <utility>

namespace gristmill {
namespace {

// A thread inherits the mask of the one that starts it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

EventLoop::EventLoop(Task at_end, Task on_lost)
    : at_end_(std::move(at_end)),
      on_lost_(std::move(on_lost)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      posted_(new_eventfd()) {
  if (!epoll_) {
    throw std::system_error(errno, std::generic_category(), "epoll_create1");
  }
  watch(posted_.get(), EPOLLIN, [this] { run_tasks(); });
  const SignalsBlocked blocked;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "gristmill");
    run();
  });
}

bool EventLoop::post(Task task) {
  if (inert_.load(std::memory_order_relaxed)) return false;
  const MutexLock lock(mutex_);
  if (stopped_) return false;
  // If the user closed our descriptors, the thread sleeps forever.
  stopped_ = !signal_eventfd(posted_.get());
  if (!stopped_) tasks_.push_back(std::move(task));
  return !stopped_;
}

void EventLoop::call(Task task) {
  auto completion = std::make_shared<std::promise<void>>();
  auto completed = completion->get_future();
  if (post([completion, task = std::move(task)] {
        task();
        completion->set_value();
      })) {
    completed.wait();
  } else if (!inert_.load(std::memory_order_relaxed)) {
    // The thread may still run a task: wait for it, and prevent others.
    const MutexLock lock(running_);
    abandoned_ = true;
  }
}

void EventLoop::stop() {
  if (post([this] { stopping_ = true; })) thread_.join();
}

void EventLoop::run() {
  std::array<epoll_event, 64> buffer{};
  while (!stopping_) {
    const int n = epoll_wait(epoll_.get(), buffer.data(),
                             static_cast<int>(buffer.size()), -1);
    const bool lost = n < 0 && errno != EINTR;
    const MutexLock lock(running_);
    if (abandoned_) return;
    if (lost) {
      on_lost_();
      refuse_tasks();
      return;
    }
    const auto count = static_cast<std::size_t>(n < 0 ? 0 : n);
    for (const epoll_event& event : std::span(buffer).first(count)) {
      const auto at = watches_.find(event.data.u64);
      if (at == watches_.end()) continue;
      const Task ready = at->second.ready;  // A copy: it may unwatch itself.
      ready();
    }
    if (!stopping_) continue;
    for (const Task& task : refuse_tasks()) task();
    at_end_();
  }
}

// Rejects tasks from now on; returns the queued ones.
std::vector<EventLoop::Task> EventLoop::refuse_tasks() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  return std::exchange(tasks_, {});
}

void EventLoop::run_tasks() {
  drain_eventfd(posted_.get());
  std::vector<Task> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const Task& task : tasks) task();
}

EventLoop::Serial EventLoop::watch(int fd, std::uint32_t events, Task ready) {
  const Serial serial = ++last_serial_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = serial;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
  watches_.emplace(serial, Watch{fd, std::move(ready)});
  return serial;
}

void EventLoop::unwatch(Serial serial) {
  const auto at = watches_.find(serial);
  if (at == watches_.end()) return;
  // Closing is not enough: a child that the user forked may hold a copy.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, at->second.fd, nullptr);
  watches_.erase(at);
}

}  // namespace gristmill
