// The mutex, guard and condition variable of the standard library, annotated
// for Clang's thread-safety analysis.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// The annotations for the analysis, `make check-threads`.  Other compilers
// ignore them.
#if defined(__clang__)
#define GRISTMILL_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define GRISTMILL_THREAD_ATTRIBUTE(x)
#endif

// For a class: its objects are locks, or hold a lock during their lifetime.
#define CAPABILITY(name) GRISTMILL_THREAD_ATTRIBUTE(capability(name))
#define SCOPED_CAPABILITY GRISTMILL_THREAD_ATTRIBUTE(scoped_lockable)

// For a member: the lock that must be held to access it.
#define GUARDED_BY(lock) GRISTMILL_THREAD_ATTRIBUTE(guarded_by(lock))

// For a function: the locks that its caller must hold, or must not hold.
#define REQUIRES(...) \
  GRISTMILL_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) GRISTMILL_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))

// For a function: the locks that it acquires or releases.
#define ACQUIRE(...) GRISTMILL_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) GRISTMILL_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))

// For a function with locking that the analysis cannot follow.  A comment must
// give the reason.
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

// Holds a mutex during its lifetime, except between unlock() and lock().
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

// A condition variable.  It may wake up spuriously: wait in a loop.
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
