// The handlers that this process runs around each fork, in a fixed order.
//
// A child has only the thread that forked.  A mutex locked by another thread
// would stay locked in the child forever.  The forking thread therefore locks
// the mutexes below first.  The data that they guard are then consistent in the
// child, which continues to use them.
#pragma once

#include "core/base/mutex.hpp"

namespace gristmill {

// The steps in the order of locking.  A thread that holds the lock of a step
// may lock that of a later step, but never that of an earlier one.  After a
// fork, the locks are released from the last to the first.
enum class ForkStep {
  kSupervisor,     // opens and closes the descriptors of the next step
  kOpenFds,        // descriptors of the engine, which a child closes
  kSchedulers,     // a child must not use the parent's workers
  kRecordReaders,  // of record sets
  kPackPlans,      // windows of plans, which a child continues to use
  kWatches,        // a child does not have the watch thread
  kDescriptors,    // of data files, which a child may continue to read
  kPython,         // threads that are about to acquire the GIL
};

// Any handler may be null.  Handlers must be short and must not use Python.
struct ForkHandlers {
  void (*before)() = nullptr;
  void (*in_parent)() = nullptr;
  void (*in_child)() = nullptr;
};

// Registers the handlers of a step.  Returns true, so that a global can be
// initialized with it: all handlers are then registered before anything can be
// locked.
// REQUIRES: each step is registered once; no lock is held.
bool at_fork(ForkStep step, ForkHandlers handlers);

// Returns handlers that hold a mutex across a fork.  In the child, `in_child`
// is called before the mutex is unlocked.
template <Mutex& mutex, void (*in_child)() = [] {}>
constexpr ForkHandlers held_at_fork() {
  return {[]() NO_THREAD_SAFETY_ANALYSIS { mutex.lock(); },
          []() NO_THREAD_SAFETY_ANALYSIS { mutex.unlock(); },
          []() NO_THREAD_SAFETY_ANALYSIS {
            in_child();
            mutex.unlock();
          }};
}

}  // namespace gristmill
