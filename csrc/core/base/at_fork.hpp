// What this process does around each fork: one list, in an order written here.
//
// A child has only the thread that forked: a mutex that another one had locked
// would stay so for ever.  So whoever forks locks the mutexes below first, and
// what they guard is consistent in the child, which goes on with it.
#pragma once

#include "core/base/mutex.hpp"

namespace gristmill {

// In the order of locking: who holds the lock of one may take that of a later
// one, never of an earlier one.  After a fork they unlock from last to first.
enum class ForkStep {
  kSupervisor,     // it opens and closes the descriptors of the next
  kOpenFds,        // the engine's, which a child closes
  kSchedulers,     // a child's may not speak to the parent's workers
  kRecordReaders,  // of record sets
  kWatches,        // a child does not have their thread
  kDescriptors,    // of files that are read, which a child may go on reading
  kPython,         // threads that were about to take the GIL
};

// Any may be null.  Little is done here, and no Python.
struct ForkHandlers {
  void (*before)() = nullptr;
  void (*in_parent)() = nullptr;
  void (*in_child)() = nullptr;
};

// Enters the handlers of a step.  Returns true, to initialize a global with:
// so they are complete before anything can be locked, whoever is first used.
// REQUIRES: each step is entered once; no lock is held.
bool at_fork(ForkStep step, ForkHandlers handlers);

// The handlers of a mutex that is held across a fork; `in_child` is called
// there before it is unlocked.
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
