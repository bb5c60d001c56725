// The standard's mutex, guard and condition variable, with what Clang's
// thread-safety analysis must know of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// What they mean to the analysis, `make check-threads`; other compilers read
// nothing.
#if defined(__clang__)
#define GRISTMILL_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define GRISTMILL_THREAD_ATTRIBUTE(x)
#endif

// Of a class: its objects are locks, or hold one for as long as they live.
#define CAPABILITY(name) GRISTMILL_THREAD_ATTRIBUTE(capability(name))
#define SCOPED_CAPABILITY GRISTMILL_THREAD_ATTRIBUTE(scoped_lockable)

// Of a member: the lock that must be held to touch it.
#define GUARDED_BY(lock) GRISTMILL_THREAD_ATTRIBUTE(guarded_by(lock))

// Of a function: the locks that its caller must hold, or must not.
#define REQUIRES(...) \
  GRISTMILL_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) GRISTMILL_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

// Of a function: the locks that it takes, or gives up.
#define ACQUIRE(...) GRISTMILL_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) GRISTMILL_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))

// Of a function that locks what the analysis cannot follow; say why.
#define NO_THREAD_SAFETY_ANALYSIS \
  GRISTMILL_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace gristmill {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class Condition;

  std::mutex mutex_;
};

// Holds a mutex from its beginning to its end, except between unlock() and
// lock().
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { lock(); }
  ~MutexLock() RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = false;
};

// A condition variable.  It may wake for no reason: wait in a loop.
class Condition {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }

  // Returns false once `limit` has passed.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point limit)
      REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time =
        changed_.wait_until(lock, limit) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }

  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace gristmill
