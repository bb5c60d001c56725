// A mutex of the whole process that no fork leaves locked.
//
// A child has only the thread that forked: a mutex that another one had locked
// would stay so for ever.  This one is locked by who forks, so what it guards
// is consistent in the child, which goes on with it.
//
// REQUIRES: little is done under it, no Python and no second one of these.
#pragma once

#include <pthread.h>

#include <mutex>

namespace gristmill {

// Returns the mutex of `Tag`, any type that names what it guards.
template <class Tag>
std::mutex& fork_mutex() {
  // Leaked: files may be closed while the process ends.
  static std::mutex* const mutex = [] {
    pthread_atfork([] { fork_mutex<Tag>().lock(); },
                   [] { fork_mutex<Tag>().unlock(); },
                   [] { fork_mutex<Tag>().unlock(); });
    return new std::mutex;
  }();
  return *mutex;
}

}  // namespace gristmill
