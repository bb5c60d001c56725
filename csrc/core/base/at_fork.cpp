#include "core/base/at_fork.hpp"

#include <pthread.h>

#include <array>
#include <cstddef>

namespace gristmill {
namespace {

constexpr std::size_t kSteps = static_cast<std::size_t>(ForkStep::kPython) + 1;

// Locked before each fork and unlocked after it, so that no handlers are added
// meanwhile.
constinit Mutex registry_mutex;
constinit std::array<ForkHandlers, kSteps> registry
    GUARDED_BY(registry_mutex){};

// The analysis cannot follow a lock from one function to another.
void prepare() NO_THREAD_SAFETY_ANALYSIS {
  registry_mutex.lock();
  for (const ForkHandlers& handlers : registry) {
    if (handlers.before != nullptr) handlers.before();
  }
}

// Calls one handler of each step, from the last step to the first.
void finish(void (*ForkHandlers::*handler)()) NO_THREAD_SAFETY_ANALYSIS {
  for (auto at = registry.rbegin(); at != registry.rend(); ++at) {
    if (*at.*handler != nullptr) (*at.*handler)();
  }
  registry_mutex.unlock();
}

[[maybe_unused]] const int kRegistered = pthread_atfork(
    prepare, [] { finish(&ForkHandlers::in_parent); },
    [] { finish(&ForkHandlers::in_child); });

}  // namespace

bool at_fork(ForkStep step, ForkHandlers handlers) {
  const MutexLock lock(registry_mutex);
  registry[static_cast<std::size_t>(step)] = handlers;
  return true;
}

}  // namespace gristmill
