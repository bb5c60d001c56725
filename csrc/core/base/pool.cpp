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
  const std::lock_guard lock(mutex_);
  open_ += tasks;
}

void TaskGroup::done() {
  const std::lock_guard lock(mutex_);
  if (--open_ == 0) empty_.notify_all();
}

bool TaskGroup::wait() {
  // A thread that is not in this process may have held the mutex.
  if (owner_ != getpid()) return open_ == 0;
  std::unique_lock lock(mutex_);
  empty_.wait(lock, [this] { return open_ == 0; });
  return true;
}

std::optional<bool> TaskGroup::wait_for(std::chrono::milliseconds most) {
  if (owner_ != getpid()) return open_ == 0;
  std::unique_lock lock(mutex_);
  if (empty_.wait_for(lock, most, [this] { return open_ == 0; })) return true;
  return std::nullopt;
}

struct Pool::Shared {
  const pid_t owner = getpid();
  std::mutex mutex;
  std::condition_variable filled;
  // Guarded by the mutex.
  std::vector<std::thread> threads;
  std::deque<std::pair<TaskGroup*, std::function<void()>>> tasks;
  std::size_t idle = 0;  // threads that wait for `filled`
  bool stopping = false;
};

Pool::Pool(std::size_t threads)
    : most_(threads), shared_(std::make_unique<Shared>()) {
  assert(threads > 0);
}

Pool::~Pool() {
  if (shared_->owner != getpid()) {
    // Threads of another process can be neither joined nor destroyed, nor what
    // they wait for: that would wait for them.
    static_cast<void>(shared_.release());
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->filled.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

void Pool::run(TaskGroup& group, std::function<void()> task) {
  if (shared_->owner == getpid()) {
    Shared& shared = *shared_;
    const std::lock_guard lock(shared.mutex);
    if (shared.tasks.size() >= shared.idle && shared.threads.size() < most_) {
      start_thread(shared);
    }
    if (!shared.threads.empty()) {
      shared.tasks.emplace_back(&group, std::move(task));
      group.expect(1);
      shared.filled.notify_one();
      return;
    }
  }
  task();
}

// Does nothing where the system has no more threads.
void Pool::start_thread(Shared& shared) noexcept {
  // The user's signals are the business of the user's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    shared.threads.emplace_back([&shared] { work(shared); });
  } catch (const std::exception&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Pool::work(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  for (;;) {
    ++shared.idle;
    shared.filled.wait(
        lock, [&] { return shared.stopping || !shared.tasks.empty(); });
    --shared.idle;
    if (shared.tasks.empty()) return;
    {
      const auto [group, task] = std::move(shared.tasks.front());
      shared.tasks.pop_front();
      lock.unlock();
      task();
      group->done();
      // The task ends without the lock: what it owns may take its time.
    }
    lock.lock();
  }
}

}  // namespace gristmill
