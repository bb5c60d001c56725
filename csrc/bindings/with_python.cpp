#include "bindings/with_python.hpp"

#include <atomic>

#include "core/base/at_fork.hpp"

namespace gristmill::bind {
namespace {

// The number of threads that are about to acquire the GIL, and a flag that
// stops others from doing so, because the interpreter is shutting down.
std::atomic<int> entering{0};
std::atomic<bool> ending{false};

// A forked child does not have the threads that were entering.
[[maybe_unused]] const bool kNoneInChildren =
    at_fork(ForkStep::kPython, {.in_child = [] { entering.store(0); }});

}  // namespace

bool begin_entering() {
  entering.fetch_add(1);
  if (!ending.load()) return true;
  end_entering();
  return false;
}

void end_entering() {
  entering.fetch_sub(1);
  entering.notify_all();
}

void leave_python_at_exit() {
  const auto end = [] {
    ending.store(true);
    const Unlocked unlocked;
    for (int left = entering.load(); left > 0; left = entering.load()) {
      entering.wait(left);
    }
  };
  py::module_::import("atexit").attr("register")(py::cpp_function(end));
}

}  // namespace gristmill::bind
