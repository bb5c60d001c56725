#include "bindings/with_python.hpp"

#include <atomic>

#include "core/base/at_fork.hpp"

namespace gristmill::bind {
namespace {

// The number of threads that are about to acquire the GIL, and a flag that
// stops others from doing so.
std::atomic<int> entering_threads{0};
std::atomic<bool> is_shutting_down{false};

// A forked child does not have the threads that were about to enter.
[[maybe_unused]] const bool kRegistered =
    at_fork(ForkStep::kPython, {.in_child = [] { entering_threads.store(0); }});

}  // namespace

// Counts the thread before it reads the flag, so that the exit handler, which
// sets the flag first, waits for every thread that does not see it.
bool begin_entering() {
  entering_threads.fetch_add(1);
  if (!is_shutting_down.load()) return true;
  end_entering();
  return false;
}

void end_entering() {
  entering_threads.fetch_sub(1);
  entering_threads.notify_all();
}

void leave_python_at_exit() {
  const auto end = [] {
    is_shutting_down.store(true);
    const Unlocked unlocked;
    for (int remaining = entering_threads.load(); remaining > 0;
         remaining = entering_threads.load()) {
      entering_threads.wait(remaining);
    }
  };
  py::module_::import("atexit").attr("register")(py::cpp_function(end));
}

}  // namespace gristmill::bind
