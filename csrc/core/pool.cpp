#include "core/pool.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cassert>
#include <utility>

namespace gristmill {

void TaskGroup::expect(std::size_t tasks) {
  const std::lock_guard lock(mutex_);
  open_ += tasks;
}

void TaskGroup::done() {
  const std::lock_guard lock(mutex_);
  if (--open_ == 0) empty_.notify_all();
}

void TaskGroup::wait() {
  std::unique_lock lock(mutex_);
  empty_.wait(lock, [this] { return open_ == 0; });
}

struct Pool::Shared {
  std::mutex mutex;
  std::condition_variable filled;
  // Guarded by the mutex.
  std::deque<std::pair<TaskGroup*, std::function<void()>>> tasks;
  bool stopping = false;
  pid_t owner = getpid();
};

Pool::Pool(std::size_t threads)
    : count_(threads), shared_(std::make_unique<Shared>()) {
  assert(threads > 0);
}

Pool::~Pool() {
  if (shared_->owner != getpid()) {
    // Threads of another process can be neither joined nor destroyed.
    for (std::thread& thread : threads_) {
      new std::thread(std::move(thread));
    }
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->filled.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::run(TaskGroup& group, std::function<void()> task) {
  group.expect(1);
  if (shared_->owner != getpid()) {
    task();
    group.done();
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    if (threads_.empty()) start();
    shared_->tasks.emplace_back(&group, std::move(task));
  }
  shared_->filled.notify_one();
}

// The user's signals are the business of the user's threads.
void Pool::start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (std::size_t i = 0; i < count_; ++i) {
    threads_.emplace_back([this] { work(); });
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Pool::work() {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.filled.wait(
        lock, [&] { return shared.stopping || !shared.tasks.empty(); });
    if (shared.tasks.empty()) return;
    const auto [group, task] = std::move(shared.tasks.front());
    shared.tasks.pop_front();
    lock.unlock();
    task();
    group->done();
    lock.lock();
  }
}

}  // namespace gristmill
