#include "core/base/pool.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cassert>
#include <deque>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace gristmill {

TaskGroup::TaskGroup() : owner_(getpid()) {}

TaskGroup::~TaskGroup() { static_cast<void>(wait()); }

void TaskGroup::expect(std::size_t tasks) {
  const MutexLock lock(mutex_);
  open_tasks_ += tasks;
}

void TaskGroup::done() {
  const MutexLock lock(mutex_);
  if (--open_tasks_ == 0) all_done_.notify_all();
}

// Returns true if no task was open at the fork.  For a forked child, whose copy
// of the mutex may be locked forever.
bool TaskGroup::was_empty_at_fork() const { return open_tasks_ == 0; }

bool TaskGroup::wait() {
  if (owner_ != getpid()) return was_empty_at_fork();
  const MutexLock lock(mutex_);
  while (open_tasks_ != 0) all_done_.wait(mutex_);
  return true;
}

std::optional<bool> TaskGroup::wait_for(std::chrono::milliseconds limit) {
  if (owner_ != getpid()) return was_empty_at_fork();
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const MutexLock lock(mutex_);
  while (open_tasks_ != 0) {
    if (!all_done_.wait_until(mutex_, deadline)) break;
  }
  if (open_tasks_ == 0) return true;
  return std::nullopt;
}

struct Pool::Shared {
  const pid_t owner = getpid();  // the process that made the pool
  Mutex mutex;
  Condition task_added;
  std::vector<std::thread> threads GUARDED_BY(mutex);
  std::deque<std::pair<TaskGroup*, std::function<void()>>> tasks
      GUARDED_BY(mutex);
  std::size_t idle GUARDED_BY(mutex) = 0;  // threads that wait for `task_added`
  bool stopping GUARDED_BY(mutex) = false;

  void work();
  void start_thread() noexcept REQUIRES(mutex);
};

Pool::Pool(std::size_t threads)
    : max_threads_(threads), shared_(std::make_unique<Shared>()) {
  assert(threads > 0);
}

Pool::~Pool() {
  if (shared_->owner != getpid()) {
    // A child can neither join nor destroy the parent's threads.  Destroying
    // their condition variable would hang too, because it waits for them.
    static_cast<void>(shared_.release());
    return;
  }
  std::vector<std::thread> threads;
  {
    const MutexLock lock(shared_->mutex);
    shared_->stopping = true;
    threads.swap(shared_->threads);
  }
  shared_->task_added.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void Pool::run(TaskGroup& group, std::function<void()> task) {
  if (shared_->owner == getpid()) {
    Shared& shared = *shared_;
    const MutexLock lock(shared.mutex);
    if (shared.tasks.size() >= shared.idle &&
        shared.threads.size() < max_threads_) {
      shared.start_thread();
    }
    if (!shared.threads.empty()) {
      shared.tasks.emplace_back(&group, std::move(task));
      group.expect(1);
      shared.task_added.notify_one();
      return;
    }
  }
  task();
}

// Does nothing if the system cannot start another thread.
void Pool::Shared::start_thread() noexcept {
  // Block all signals: the threads of the user handle them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    threads.emplace_back([this] { work(); });
  } catch (const std::exception&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Pool::Shared::work() {
  MutexLock lock(mutex);
  for (;;) {
    ++idle;
    while (!stopping && tasks.empty()) task_added.wait(mutex);
    --idle;
    if (tasks.empty()) return;
    auto [group, task] = std::move(tasks.front());
    tasks.pop_front();
    lock.unlock();
    task();
    group->done();
    // Destroy the task without the lock, because that may take a while.
    task = nullptr;
    lock.lock();
  }
}

}  // namespace gristmill
